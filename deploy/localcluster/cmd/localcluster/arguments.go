package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/deploy/localcluster/internal/cluster"
)

const (
	mostNodes     = 20000
	highestPort   = 65535
	portsOfACount = 6
	readyTimeout  = 120 * time.Second
)

const help = `localcluster: a Kubernetes control plane of real parts on this machine, without containers

  localcluster build     build the binaries into the cache
  localcluster up        start a cluster and keep it running until SIGINT or SIGTERM
  localcluster version   say which Kubernetes this is
  localcluster help      this text

Arguments of "up":
  --dir DIR                      where the cluster lives: data, logs, kubeconfig (needed)
  --kubeconfig FILE              where to write the kubeconfig (DIR/kubeconfig)
  --host ADDRESS                 the IP address to listen on (127.0.0.1)
  --port-base N                  N to N+5: etcd, its peer port, API server, scheduler, controller manager, kwok
  --etcd-port N, --etcd-peer-port N, --apiserver-port N, --scheduler-port N,
  --controller-manager-port N, --kwok-port N
                                 single ports; 0, or none given: a free one
  --scheduler-config FILE        a KubeSchedulerConfiguration, YAML or JSON
  --no-scheduler, --no-controller-manager, --no-kwok
                                 leave that part out
  --nodes N                      create node-1 to node-N
  --nodes-file FILE              create the nodes of this file, YAML or JSON
  --no-restart NAME,...          don't start these again when they die
                                 (etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok; all)
  --ready-timeout DURATION       how long each part may take to be ready (2m)
  --fresh                        remove what an earlier cluster in DIR stored

Environment:
  BERTH_KUBE_ASSETS   a folder of ready binaries; nothing is built
  BERTH_CACHE_DIR     where built binaries are kept (~/.cache/berth)
  BERTH_GO            the go command to build with when PATH has none
`

// command is what the arguments ask for.
type command struct {
	name    string
	options cluster.Options
}

func parse(arguments []string) (command, error) {
	if len(arguments) == 0 {
		return command{}, errors.New(`no command; give one of build, up, version, help`)
	}
	name, rest := arguments[0], arguments[1:]
	switch name {
	case "-h", "--help", "help":
		return command{name: "help"}, nil
	case "build", "version":
		if slices.Contains(rest, "--help") {
			return command{name: "help"}, nil
		}
		if len(rest) > 0 {
			return command{}, fmt.Errorf("%s: it takes no arguments, but %q was given", name, rest[0])
		}
		return command{name: name}, nil
	case "up":
		options, err := parseUp(rest)
		if errors.Is(err, flag.ErrHelp) {
			return command{name: "help"}, nil
		}
		if err != nil {
			return command{}, fmt.Errorf("up: %w", err)
		}
		return command{name: name, options: options}, nil
	}
	return command{}, fmt.Errorf("unknown command %q; give one of build, up, version, help", name)
}

// without are the parts that are to be left out.
type without struct{ scheduler, controllerManager, kwok bool }

func parseUp(arguments []string) (cluster.Options, error) {
	options := cluster.Options{NoRestart: map[string]bool{}}
	var no without
	base := 0
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&options.Folder, "dir", "", "")
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&options.Host, "host", "127.0.0.1", "")
	flags.StringVar(&options.SchedulerConfig, "scheduler-config", "", "")
	flags.StringVar(&options.NodesFile, "nodes-file", "", "")
	flags.BoolVar(&options.Fresh, "fresh", false, "")
	flags.BoolVar(&no.scheduler, "no-scheduler", false, "")
	flags.BoolVar(&no.controllerManager, "no-controller-manager", false, "")
	flags.BoolVar(&no.kwok, "no-kwok", false, "")
	flags.Func("nodes", "", wholeNumber(&options.Nodes, mostNodes))
	flags.Func("port-base", "", wholeNumber(&base, highestPort-portsOfACount+1))
	for name, port := range portFlags(&options.Ports) {
		flags.Func(name, "", wholeNumber(port, highestPort))
	}
	options.ReadyTimeout = readyTimeout
	flags.Func("ready-timeout", "", duration(&options.ReadyTimeout))
	flags.Func("no-restart", "", componentNames(options.NoRestart))
	if err := flags.Parse(arguments); err != nil {
		return options, readable(err)
	}
	if flags.NArg() > 0 {
		return options, fmt.Errorf("%q is not an argument of it; \"localcluster help\" lists them", flags.Arg(0))
	}
	options.Scheduler, options.ControllerManager, options.Kwok = !no.scheduler, !no.controllerManager, !no.kwok
	portsFrom(base, &options.Ports)
	return options, complete(&options)
}

// complete checks what single arguments can't tell, and makes paths absolute.
func complete(options *cluster.Options) error {
	if options.Folder == "" {
		return errors.New("--dir is missing; give the folder where the cluster is to live, for example --dir .localcluster")
	}
	if net.ParseIP(options.Host) == nil {
		return fmt.Errorf("--host: %q is not an IP address; write for example --host 127.0.0.1", options.Host)
	}
	if options.Nodes > 0 && options.NodesFile != "" {
		return errors.New("--nodes and --nodes-file exclude each other; give one of them")
	}
	if options.SchedulerConfig != "" && !options.Scheduler {
		return errors.New("--scheduler-config and --no-scheduler exclude each other; give one of them")
	}
	folder, err := filepath.Abs(options.Folder)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	options.Folder = folder
	if options.Kubeconfig == "" {
		options.Kubeconfig = filepath.Join(folder, "kubeconfig")
	}
	options.Kubeconfig, err = filepath.Abs(options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	return nil
}

func portFlags(ports *cluster.Ports) map[string]*int {
	return map[string]*int{
		"etcd-port":               &ports.Etcd,
		"etcd-peer-port":          &ports.EtcdPeer,
		"apiserver-port":          &ports.APIServer,
		"scheduler-port":          &ports.Scheduler,
		"controller-manager-port": &ports.ControllerManager,
		"kwok-port":               &ports.Kwok,
	}
}

// portsFrom counts the ports that aren't given singly up from base.
func portsFrom(base int, ports *cluster.Ports) {
	if base == 0 {
		return
	}
	for offset, port := range []*int{&ports.Etcd, &ports.EtcdPeer, &ports.APIServer,
		&ports.Scheduler, &ports.ControllerManager, &ports.Kwok} {
		if *port == 0 {
			*port = base + offset
		}
	}
}

func wholeNumber(into *int, most int) func(string) error {
	return func(text string) error {
		number, err := strconv.Atoi(text)
		if err != nil || number < 0 || number > most {
			return fmt.Errorf("want a whole number from 0 to %d", most)
		}
		*into = number
		return nil
	}
}

func duration(into *time.Duration) func(string) error {
	return func(text string) error {
		parsed, err := time.ParseDuration(text)
		if err != nil || parsed <= 0 {
			return errors.New("want a time with its unit, for example 90s or 2m")
		}
		*into = parsed
		return nil
	}
}

func componentNames(into map[string]bool) func(string) error {
	return func(text string) error {
		for name := range strings.SplitSeq(text, ",") {
			name = strings.TrimSpace(name)
			switch {
			case name == "all":
				for _, known := range cluster.Names {
					into[known] = true
				}
			case slices.Contains(cluster.Names, name):
				into[name] = true
			default:
				return fmt.Errorf("%q is not a component; want some of %s, separated by commas, or all",
					name, strings.Join(cluster.Names, ", "))
			}
		}
		return nil
	}
}

// readable writes the flag package's errors as this command writes arguments:
// with two dashes.
func readable(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	text := err.Error()
	if name, found := strings.CutPrefix(text, "flag provided but not defined: -"); found {
		return fmt.Errorf("there is no argument --%s; \"localcluster help\" lists them", strings.TrimPrefix(name, "-"))
	}
	if name, found := strings.CutPrefix(text, "flag needs an argument: -"); found {
		return fmt.Errorf("--%s needs a value; \"localcluster help\" shows which", name)
	}
	return errors.New(strings.NewReplacer("for flag -", "for --", "for -", "for --").Replace(text))
}
