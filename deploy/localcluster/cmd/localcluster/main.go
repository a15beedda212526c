// Command localcluster runs a Kubernetes control plane of real parts on one
// machine without containers: etcd, kube-apiserver, kube-scheduler,
// kube-controller-manager and kwok's fake nodes.
//
// Start it by the script deploy/localcluster/localcluster, which builds it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"berth/deploy/localcluster/internal/assets"
	"berth/deploy/localcluster/internal/cluster"
	"berth/deploy/localcluster/internal/process"
)

const (
	exitFault    = 1
	exitArgument = 2 // Go's own of a panic, too
	exitFile     = 3
)

// The main goroutine stays on the process's first thread, the only one that
// certainly lives as long as the process does; see process.OnThread.
func init() { runtime.LockOSThread() }

func main() {
	calls, code := make(chan func()), make(chan int)
	onThread := func(call func()) {
		done := make(chan struct{})
		calls <- func() { defer close(done); call() }
		<-done
	}
	go func() { code <- run(os.Args[1:], os.Stdout, os.Stderr, onThread) }()
	for {
		select {
		case call := <-calls:
			call()
		case result := <-code:
			os.Exit(result)
		}
	}
}

func run(arguments []string, output, faults io.Writer, onThread func(func())) int {
	command, err := parse(arguments)
	if err != nil {
		fmt.Fprintf(faults, "localcluster: %v\n", err)
		return exitArgument
	}
	switch command.name {
	case "help":
		fmt.Fprint(output, help)
	case "version":
		err = version(output)
	case "build":
		err = build(output, onThread)
	case "up":
		err = up(command.options, output, onThread)
	}
	if err != nil {
		fmt.Fprintf(faults, "localcluster: %v\n", err)
		if errors.As(err, &cluster.FileError{}) {
			return exitFile
		}
		return exitFault
	}
	return 0
}

func version(output io.Writer) error {
	kubernetes, err := assets.Version()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(output, kubernetes)
	return err
}

func build(output io.Writer, onThread func(func())) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	binaries, err := buildBinaries(output, onThread)(ctx, func(string, int, int) {})
	if errors.Is(err, context.Canceled) {
		return errors.New("the build was ended; start it again, it goes on where it was")
	}
	if err == nil {
		fmt.Fprintln(output, "binaries in", binaries.Folder)
	}
	return err
}

func up(options cluster.Options, output io.Writer, onThread func(func())) error {
	one := cluster.New(options, onThread, output)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader that closes our standard output must not end the cluster.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		<-signals
		end()
		<-signals // asked twice: don't wait for anything
		one.Kill()
	}()
	return one.Run(ctx, buildBinaries(output, onThread))
}

// buildBinaries finds the binaries or builds them, and prints how far it is.
func buildBinaries(output io.Writer, onThread func(func())) cluster.Build {
	return func(ctx context.Context, progress assets.Progress) (assets.Binaries, error) {
		cache, err := assets.CacheFolder()
		if err != nil && os.Getenv(assets.FolderVariable) == "" {
			return assets.Binaries{}, err
		}
		printed := newPrinter(output)
		builder := assets.Builder{
			Source: os.Getenv(assets.SourceVariable),
			Cache:  cache,
			Go:     os.Getenv(assets.GoVariable),
			Start: func(command *exec.Cmd) (err error) {
				command.SysProcAttr = process.Attributes()
				onThread(func() { err = command.Start() })
				return err
			},
			Progress: func(message string, done, total int) {
				progress(message, done, total)
				printed.tell(message, done, total)
			},
		}
		return builder.Build(ctx)
	}
}
