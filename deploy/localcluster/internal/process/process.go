// Package process runs programs and keeps them running.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	pollEvery  = 50 * time.Millisecond
	checkLimit = 2 * time.Second
)

// ErrStopped says that a program was stopped before it was ready.
var ErrStopped = errors.New("stopped before it was ready")

// OnThread runs a function on the one operating system thread that lives as
// long as the supervisor. Programs must be started there: Linux's
// parent-death signal fires when the thread that started the child ends, not
// only when the process does (prctl(2), PR_SET_PDEATHSIG).
type OnThread func(func())

// Program is what to run and how.
type Program struct {
	Name    string
	Path    string   // the binary
	Args    []string // with argv[0]
	Env     []string // added to the supervisor's own
	LogFile string   // appended to
	Ready   func(context.Context) error
	Restart bool
}

// Event tells what happened to a program.
type Event struct {
	Name     string
	State    State
	PID      int
	Restarts int
	Cause    string        // why it ended, for Restarting and Ended
	After    time.Duration // Ready: how long it took; Restarting: how long until the next start
}

// State of a program.
type State int

// States that events tell of.
const (
	Started    State = iota // runs, not ready yet
	Ready                   // answers
	Restarting              // died, and will be started again
	Ended                   // died, and stays so
)

// Running is a program under supervision.
type Running struct {
	program  Program
	on       OnThread
	tell     func(Event)
	restarts int
	backoff  Backoff

	stop      chan struct{} // closed: end it
	stopOnce  sync.Once
	kill      chan struct{} // closed: end it at once
	killOnce  sync.Once
	done      chan struct{} // closed: it has ended for good
	firstDone chan error    // the outcome of the first start
	grace     time.Duration
}

// Start starts a program and waits until it is ready. A program that dies or
// isn't ready in time at its first start is an error and is not restarted:
// its arguments or its configuration are wrong, and trying again hides that.
// Later deaths are dealt with as Program.Restart says, until Stop.
func Start(ctx context.Context, program Program, patience, grace time.Duration, on OnThread, tell func(Event)) (*Running, error) {
	running := &Running{
		program: program, on: on, tell: tell, grace: grace,
		stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
		firstDone: make(chan error, 1),
	}
	go running.supervise(patience)
	select {
	case err := <-running.firstDone:
		return running, err
	case <-ctx.Done():
		running.Stop()
		return running, ErrStopped
	}
}

// Stop ends the program: SIGTERM, then SIGKILL when it hasn't ended in time.
// It returns when the program is gone.
func (r *Running) Stop() {
	r.stopOnce.Do(func() { close(r.stop) })
	<-r.done
}

// Kill makes a Stop that is under way or comes later not wait.
func (r *Running) Kill() {
	r.killOnce.Do(func() { close(r.kill) })
}

// child is one run of the program.
type child struct {
	command *exec.Cmd
	exited  chan struct{} // closed: it ended, for the cause given
	cause   string
	started time.Time
}

func (r *Running) supervise(patience time.Duration) {
	defer close(r.done)
	for first := true; ; first = false {
		run, err := r.launch()
		if err == nil {
			err = r.watchUntilReady(run, patience)
			if first {
				r.firstDone <- err
			}
			if first && err != nil {
				r.end(run)
				return
			}
			select {
			case <-run.exited:
			case <-r.stop:
				r.end(run)
				return
			}
		} else if first {
			r.firstDone <- err
			return
		}
		if !r.pauseAfter(run) {
			return
		}
	}
}

// launch starts the program on the supervisor's lasting thread.
func (r *Running) launch() (*child, error) {
	log, err := os.OpenFile(r.program.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return &child{cause: err.Error(), started: time.Now()}, err
	}
	defer log.Close()
	command := &exec.Cmd{
		Path: r.program.Path, Args: r.program.Args, Env: append(os.Environ(), r.program.Env...),
		Stdout: log, Stderr: log, SysProcAttr: Attributes(),
	}
	r.on(func() { err = command.Start() })
	run := &child{command: command, exited: make(chan struct{}), started: time.Now()}
	if err != nil {
		run.cause = err.Error()
		return run, fmt.Errorf("starting %s: %w", r.program.Name, err)
	}
	r.tell(Event{Name: r.program.Name, State: Started, PID: command.Process.Pid, Restarts: r.restarts})
	go func() {
		command.Wait()
		run.cause = command.ProcessState.String()
		close(run.exited)
	}()
	return run, nil
}

// watchUntilReady polls the program until it is ready. After a restart there is
// no limit: the program may wait for another one that is down as well.
func (r *Running) watchUntilReady(run *child, patience time.Duration) error {
	expired := time.After(patience)
	if r.restarts > 0 {
		expired = nil
	}
	var last error
	for {
		if last = r.check(); last == nil {
			r.tell(Event{Name: r.program.Name, State: Ready, PID: run.command.Process.Pid,
				Restarts: r.restarts, After: time.Since(run.started)})
			return nil
		}
		select {
		case <-run.exited:
			return fmt.Errorf("%s ended before it was ready: %s", r.program.Name, run.cause)
		case <-r.stop:
			return ErrStopped
		case <-expired:
			return fmt.Errorf("%s was not ready after %s: %w", r.program.Name, patience, last)
		case <-time.After(pollEvery):
		}
	}
}

func (r *Running) check() error {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	return r.program.Ready(ctx)
}

// pauseAfter waits before the next start, and says whether there is to be one.
func (r *Running) pauseAfter(run *child) bool {
	select {
	case <-r.stop:
		return false
	default:
	}
	event := Event{Name: r.program.Name, State: Ended, Restarts: r.restarts, Cause: run.cause}
	if !r.program.Restart {
		r.tell(event)
		return false
	}
	r.restarts++
	event.State, event.Restarts, event.After = Restarting, r.restarts, r.backoff.Delay(time.Since(run.started))
	r.tell(event)
	select {
	case <-r.stop:
		return false
	case <-time.After(event.After):
		return true
	}
}

func (r *Running) end(run *child) {
	run.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-run.exited:
		return
	case <-r.kill:
	case <-time.After(r.grace):
	}
	run.command.Process.Kill()
	<-run.exited
}
