package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/deploy/localcluster/internal/assets"
	"berth/deploy/localcluster/internal/credentials"
	"berth/deploy/localcluster/internal/durable"
	"berth/deploy/localcluster/internal/nodes"
	"berth/deploy/localcluster/internal/ports"
	"berth/deploy/localcluster/internal/process"
	"berth/deploy/localcluster/internal/schedulerconfig"
	"berth/deploy/localcluster/internal/status"
)

const (
	grace        = 5 * time.Second // between SIGTERM and SIGKILL, for each component
	portPatience = 5 * time.Second // how long a given port may still be in use
	aliveEvery   = 5 * time.Second // how often the status file is written when nothing happens
	logTail      = 20
)

// kwokConfiguration is what kwok does to nodes and pods.
//
//go:embed kwok.yaml
var kwokConfiguration []byte

// Cluster is one control plane, in one folder.
type Cluster struct {
	options Options
	on      process.OnThread
	output  io.Writer
	started time.Time

	status   *status.File
	layout   *layout
	mutex    sync.Mutex
	saying   sync.Mutex
	running  []*process.Running
	up       bool // all were ready once
	stopping bool
}

// New makes a cluster that isn't started yet. Its programs are started by on;
// a line for each step is written to output.
func New(options Options, on process.OnThread, output io.Writer) *Cluster {
	return &Cluster{options: options, on: on, output: output}
}

// Build gets the binaries, and tells how far it is.
type Build func(context.Context, assets.Progress) (assets.Binaries, error)

// FileError says that a file that was named can't be used: starting again
// doesn't help.
type FileError struct{ error }

// Run starts the cluster and keeps it running until ctx ends, then ends it.
// Its error says why it couldn't be started.
func (c *Cluster) Run(ctx context.Context, build Build) error {
	c.started = time.Now()
	if err := os.MkdirAll(c.in("logs"), 0o700); err != nil {
		return fmt.Errorf("making the cluster's folder: %w", err)
	}
	lock, err := durable.TryLock(c.in("lock"), fmt.Sprint(os.Getpid()))
	if errors.Is(err, durable.ErrLocked) {
		return fmt.Errorf("a cluster runs in %s already (process %s); end it first, or give another folder by --dir",
			c.options.Folder, durable.Holder(c.in("lock")))
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	earlier, _ := status.Read(c.in("status.json"))
	c.status = status.New(c.in("status.json"))
	held, err := ports.NewSet(c.options.Host)
	if err != nil {
		return err
	}
	defer held.Release()
	err = c.start(ctx, build, held, earlier)
	if err == nil {
		c.stayAlive(ctx)
	}
	c.stop(err)
	if ctx.Err() != nil {
		return nil // it was asked to end
	}
	return err
}

// Kill makes the ending that is under way not wait for anything.
func (c *Cluster) Kill() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, running := range c.running {
		running.Kill()
	}
}

func (c *Cluster) start(ctx context.Context, build Build, held *ports.Set, earlier status.Document) error {
	wanted, err := c.readNodes()
	if err != nil {
		return FileError{err}
	}
	configuration, err := c.readSchedulerConfig()
	if err != nil {
		return FileError{err}
	}
	binaries, err := c.build(ctx, build)
	if err != nil {
		return err
	}
	if err := c.prepare(binaries, held, earlier, configuration); err != nil {
		return err
	}
	for _, component := range c.layout.components() {
		if err := c.startComponent(ctx, component); err != nil {
			return err
		}
		if component.program.Name == APIServer {
			if err := c.writeKubeconfigs(); err != nil {
				return err
			}
			if err := c.createNodes(ctx, wanted); err != nil {
				return err
			}
		}
	}
	if err := c.waitForNodes(ctx, wanted); err != nil {
		return err
	}
	return c.announce()
}

// readNodes and readSchedulerConfig come before anything is started: a fault in
// a file should be told at once.
func (c *Cluster) readNodes() ([]nodes.Node, error) {
	if c.options.NodesFile == "" {
		return nodes.Numbered(c.options.Nodes)
	}
	text, err := os.ReadFile(c.options.NodesFile)
	if err != nil {
		return nil, fmt.Errorf("reading the file of --nodes-file: %w", err)
	}
	wanted, err := nodes.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--nodes-file %s: %w", c.options.NodesFile, err)
	}
	return wanted, nil
}

func (c *Cluster) readSchedulerConfig() ([]byte, error) {
	configuration := schedulerconfig.Default()
	if file := c.options.SchedulerConfig; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the file of --scheduler-config: %w", err)
		}
		configuration = text
	}
	rewritten, err := schedulerconfig.Rewrite(configuration, c.in("kubeconfig"))
	if err != nil && c.options.SchedulerConfig != "" {
		return nil, fmt.Errorf("--scheduler-config %s: %w", c.options.SchedulerConfig, err)
	}
	return rewritten, err
}

func (c *Cluster) build(ctx context.Context, build Build) (assets.Binaries, error) {
	return build(ctx, func(message string, done, total int) {
		c.change(func(document *status.Document) {
			document.Phase, document.Step, document.Message = status.Building, "build", message
			document.Done, document.Total = done, total
		})
	})
}

// prepare chooses ports and writes all files that the components read.
func (c *Cluster) prepare(binaries assets.Binaries, held *ports.Set, earlier status.Document, configuration []byte) error {
	if c.options.Fresh {
		if err := os.RemoveAll(c.in("etcd")); err != nil {
			return fmt.Errorf("removing what the last run stored: %w", err)
		}
	}
	chosen, err := choosePorts(c.options, held, earlier)
	if err != nil {
		return err
	}
	secrets, err := credentials.Prepare(c.in("secrets"), c.options.Host)
	if err != nil {
		return err
	}
	c.layout = &layout{options: c.options, ports: chosen, binaries: binaries, secrets: secrets}
	c.layout.api = newClient(secrets, c.layout.reachableURL("https", chosen.APIServer))
	if err := os.MkdirAll(c.in("kwok"), 0o700); err != nil {
		return err
	}
	return errors.Join(
		durable.WriteFile(c.layout.kwokConfig(), kwokConfiguration, 0o644),
		durable.WriteFile(c.layout.schedulerConfig(), configuration, 0o600))
}

// choosePorts holds the given ports and finds free ones for the others: those
// of the last run in this folder if they are free, so that a kubeconfig which
// somebody still has goes on working.
func choosePorts(options Options, held *ports.Set, earlier status.Document) (Ports, error) {
	chosen := options.Ports
	etcd := earlier.Components[Etcd]
	all := []struct {
		flag    string
		port    *int
		earlier int
	}{
		{"--etcd-port", &chosen.Etcd, etcd.Port},
		{"--etcd-peer-port", &chosen.EtcdPeer, etcd.PeerPort},
		{"--apiserver-port", &chosen.APIServer, earlier.Components[APIServer].Port},
		{"--scheduler-port", &chosen.Scheduler, earlier.Components[Scheduler].Port},
		{"--controller-manager-port", &chosen.ControllerManager, earlier.Components[ControllerManager].Port},
		{"--kwok-port", &chosen.Kwok, earlier.Components[Kwok].Port},
	}
	for _, one := range all {
		if *one.port == 0 {
			continue
		}
		if err := held.Take(*one.port, portPatience); err != nil {
			return chosen, fmt.Errorf("%s: %w; give another port, or 0 for a free one", one.flag, err)
		}
	}
	for _, one := range all {
		if *one.port != 0 {
			continue
		}
		port, err := held.TakeFree(one.earlier)
		if err != nil {
			return chosen, err
		}
		*one.port = port
	}
	return chosen, nil
}

func (c *Cluster) startComponent(ctx context.Context, component component) error {
	name := component.program.Name
	c.change(func(document *status.Document) {
		document.Phase, document.Step, document.Message = status.Starting, name, "starting "+name
		document.Done, document.Total = 0, 0
		entry := status.Component{Port: component.port, State: status.Starting}
		if name == Etcd {
			entry.PeerPort = c.layout.ports.EtcdPeer
		}
		document.Components[name] = entry
	})
	begun := time.Now()
	running, err := process.Start(ctx, component.program, c.options.ReadyTimeout, grace, c.on, c.record)
	c.mutex.Lock()
	c.running = append(c.running, running)
	c.mutex.Unlock()
	if errors.Is(err, process.ErrStopped) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, logExcerpt(component.program.LogFile))
	}
	c.say("%s ready after %s on port %d", name, seconds(time.Since(begun)), component.port)
	return nil
}

func logExcerpt(path string) string {
	lines := process.Tail(path, logTail)
	if len(lines) == 0 {
		return "its log " + path + " is empty"
	}
	return fmt.Sprintf("the last lines of its log %s:\n  %s", path, strings.Join(lines, "\n  "))
}

func (c *Cluster) writeKubeconfigs() error {
	for _, path := range slices.Compact([]string{c.layout.kubeconfig(), c.options.Kubeconfig}) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making the folder for the kubeconfig: %w", err)
		}
		if err := c.layout.secrets.WriteKubeconfig(path, c.layout.api.url); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) createNodes(ctx context.Context, wanted []nodes.Node) error {
	if len(wanted) == 0 {
		return nil
	}
	begun := time.Now()
	tell := c.counter("creating nodes")
	if err := c.layout.api.createNodes(ctx, wanted, func(done int) { tell(done, len(wanted)) }); err != nil {
		return err
	}
	c.say("%d nodes created after %s", len(wanted), seconds(time.Since(begun)))
	return nil
}

func (c *Cluster) waitForNodes(ctx context.Context, wanted []nodes.Node) error {
	if len(wanted) == 0 || !c.options.Kwok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.ReadyTimeout)
	defer cancel()
	if err := c.layout.api.waitForReady(ctx, wanted, c.counter("waiting for nodes to be Ready")); err != nil {
		return fmt.Errorf("%w\n%s", err, logExcerpt(c.layout.logFile(Kwok)))
	}
	c.say("nodes Ready")
	return nil
}

// counter tells the status file of progress, but not of each single step.
func (c *Cluster) counter(message string) func(done, total int) {
	var told time.Time
	return func(done, total int) {
		if done < total && time.Since(told) < 100*time.Millisecond {
			return
		}
		told = time.Now()
		c.change(func(document *status.Document) {
			document.Step, document.Message = "nodes", fmt.Sprintf("%s: %d of %d", message, done, total)
			document.Done, document.Total = done, total
		})
	}
}

func (c *Cluster) announce() error {
	c.mutex.Lock()
	c.up = true
	c.mutex.Unlock()
	err := c.status.Change(func(document *status.Document) {
		document.Kubeconfig = c.options.Kubeconfig
		document.Phase = status.Ready
		c.settle(document, "")
	})
	c.say("ready: kubeconfig %s (after %s)", c.options.Kubeconfig, seconds(time.Since(c.started)))
	return err
}

// stayAlive keeps the status file's time fresh until ctx ends, so that a reader
// can tell a cluster that runs from one whose supervisor was killed.
func (c *Cluster) stayAlive(ctx context.Context) {
	ticker := time.NewTicker(aliveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.change(func(*status.Document) {})
		}
	}
}

// stop ends all components in reverse order. fault is why they are ended, nil
// when the cluster was asked to end.
func (c *Cluster) stop(fault error) {
	c.mutex.Lock()
	c.stopping = true
	running := slices.Clone(c.running)
	c.mutex.Unlock()
	for _, one := range slices.Backward(running) {
		one.Stop()
	}
	c.change(func(document *status.Document) {
		document.Phase, document.Step, document.Message = status.Stopped, "", "stopped"
		if fault != nil && !errors.Is(fault, process.ErrStopped) && !errors.Is(fault, context.Canceled) {
			document.Phase, document.Message = status.Failed, fault.Error()
		}
		for name, component := range document.Components {
			component.PID, component.State = 0, status.Stopped
			document.Components[name] = component
		}
	})
	if fault == nil || errors.Is(fault, process.ErrStopped) {
		c.say("stopped")
	}
}

// record writes down what happens to a component.
func (c *Cluster) record(event process.Event) {
	c.mutex.Lock()
	up, stopping := c.up, c.stopping
	c.mutex.Unlock()
	if stopping {
		return
	}
	message := happened(event)
	if up && message != "" {
		c.say("%s", message)
	}
	c.change(func(document *status.Document) {
		component := document.Components[event.Name]
		component.PID, component.Restarts, component.State = event.PID, event.Restarts, stateName(event)
		document.Components[event.Name] = component
		if up {
			document.Step = event.Name
			c.settle(document, message)
		}
	})
}

// settle sets the phase of a cluster that was ready once: it is ready again
// when no component is on its way.
func (c *Cluster) settle(document *status.Document, message string) {
	document.Phase, document.Message, document.Done, document.Total = status.Ready, message, 0, 0
	for _, component := range document.Components {
		if component.State == status.Starting || component.State == status.Restarting {
			document.Phase = status.Starting
		}
	}
	if document.Phase == status.Ready && message == "" {
		document.Step, document.Message = "", "ready"
	}
}

func stateName(event process.Event) string {
	switch event.State {
	case process.Ready:
		return status.Ready
	case process.Restarting:
		return status.Restarting
	case process.Ended:
		return status.Stopped
	}
	if event.Restarts > 0 {
		return status.Restarting
	}
	return status.Starting
}

func happened(event process.Event) string {
	switch event.State {
	case process.Ready:
		return fmt.Sprintf("%s ready again after %s", event.Name, seconds(event.After))
	case process.Restarting:
		return fmt.Sprintf("%s ended (%s), starting it again in %s", event.Name, event.Cause, seconds(event.After))
	case process.Ended:
		return fmt.Sprintf("%s ended (%s) and stays so, as --no-restart says", event.Name, event.Cause)
	}
	return ""
}

func (c *Cluster) in(name string) string { return filepath.Join(c.options.Folder, name) }

func (c *Cluster) say(format string, values ...any) {
	c.saying.Lock()
	defer c.saying.Unlock()
	fmt.Fprintf(c.output, format+"\n", values...)
}

// change edits the status file. A disk that is full must not end the cluster,
// so a fault is said and passed over.
func (c *Cluster) change(edit func(*status.Document)) {
	if err := c.status.Change(edit); err != nil {
		c.say("the status file is not up to date: %v", err)
	}
}

func seconds(duration time.Duration) string {
	return fmt.Sprintf("%.1f s", duration.Seconds())
}
