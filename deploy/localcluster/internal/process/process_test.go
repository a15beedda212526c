package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestTheDelayGrowsWhileAProgramKeepsDying(t *testing.T) {
	var backoff Backoff
	var delays []string
	for range 8 {
		delays = append(delays, backoff.Delay(time.Second).String())
	}
	if got := strings.Join(delays, " "); got != "100ms 200ms 400ms 800ms 1.6s 3.2s 5s 5s" {
		t.Errorf("got %s", got)
	}
	if delay := backoff.Delay(time.Minute); delay != firstDelay {
		t.Errorf("after a long life it waits %s", delay)
	}
}

// events collects what is told of a program.
type events struct {
	mutex sync.Mutex
	all   []Event
}

func (e *events) tell(event Event) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.all = append(e.all, event)
}

func (e *events) wait(t *testing.T, state State, count int) Event {
	t.Helper()
	for range 500 {
		e.mutex.Lock()
		seen := 0
		for _, event := range e.all {
			if event.State == state {
				if seen++; seen == count {
					e.mutex.Unlock()
					return event
				}
			}
		}
		e.mutex.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("state %d was not told %d times: %+v", state, count, e.all)
	return Event{}
}

func shell(t *testing.T, script string) Program {
	return Program{
		Name: "shell", Path: "/bin/sh", Args: []string{"sh", "-c", script},
		LogFile: filepath.Join(t.TempDir(), "log"),
		Ready:   func(context.Context) error { return nil },
		Restart: true,
	}
}

func here(call func()) { call() }

func start(t *testing.T, program Program, told *events) (*Running, error) {
	running, err := Start(context.Background(), program, time.Second, 300*time.Millisecond, here, told.tell)
	t.Cleanup(running.Stop)
	return running, err
}

func TestAKilledProgramIsStartedAgain(t *testing.T) {
	told := &events{}
	if _, err := start(t, shell(t, "sleep 60"), told); err != nil {
		t.Fatal(err)
	}
	first := told.wait(t, Ready, 1)
	begun := time.Now()
	syscall.Kill(first.PID, syscall.SIGKILL)
	again := told.wait(t, Ready, 2)
	if again.PID == first.PID || again.Restarts != 1 || time.Since(begun) > time.Second {
		t.Errorf("got %+v after %s", again, time.Since(begun))
	}
	if cause := told.wait(t, Restarting, 1).Cause; cause != "signal: killed" {
		t.Errorf("the cause is %q", cause)
	}
}

func TestAProgramMayStayDead(t *testing.T) {
	told := &events{}
	program := shell(t, "sleep 60")
	program.Restart = false
	if _, err := start(t, program, told); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(told.wait(t, Ready, 1).PID, syscall.SIGKILL)
	told.wait(t, Ended, 1)
}

func TestAProgramThatDiesAtItsFirstStartIsAnError(t *testing.T) {
	program := shell(t, "echo wrong flag; exit 3")
	program.Ready = func(context.Context) error { return errors.New("no answer") }
	_, err := start(t, program, &events{})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if lines := Tail(program.LogFile, 5); len(lines) != 1 || lines[0] != "wrong flag" {
		t.Errorf("its log is %q", lines)
	}
}

func TestAProgramThatIsNeverReadyIsAnErrorAndEnds(t *testing.T) {
	told := &events{}
	program := shell(t, "sleep 60")
	program.Ready = func(context.Context) error { return errors.New("no answer") }
	_, err := start(t, program, told)
	if err == nil || !strings.Contains(err.Error(), "not ready after 1s: no answer") {
		t.Errorf("got %v", err)
	}
	pid := told.wait(t, Started, 1).PID
	for range 100 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it still runs")
}

func TestAMissingBinaryIsAnError(t *testing.T) {
	program := shell(t, "")
	program.Path = "/nonexistent"
	if _, err := start(t, program, &events{}); err == nil {
		t.Error("it was started")
	}
}

func TestAProgramThatIgnoresSIGTERMIsKilled(t *testing.T) {
	told := &events{}
	running, err := start(t, shell(t, "trap '' TERM; while :; do sleep 0.05; done"), told)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // until the trap is set
	begun := time.Now()
	running.Stop()
	if took := time.Since(begun); took < 250*time.Millisecond || took > 2*time.Second {
		t.Errorf("it ended after %s", took)
	}
}

func TestTheTailOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	os.WriteFile(path, []byte("a\nb\nc\n"), 0o600)
	if got := strings.Join(Tail(path, 2), ","); got != "b,c" {
		t.Errorf("got %s", got)
	}
	if Tail(path+"x", 2) != nil {
		t.Error("a missing log has lines")
	}
}
