// Package ports chooses TCP ports for programs that are started later.
//
// Ports come from below the range that systems use for outgoing connections
// (from 32768 on Linux, from 49152 elsewhere). A port taken from that range can
// be lost to somebody's outgoing connection while its program restarts. Each
// port in use is also locked in a folder for temporary files, so that several
// clusters started at the same moment don't choose the same one.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth/deploy/localcluster/internal/durable"
)

const (
	lowest  = 20000
	highest = 29999
	tries   = 500
)

// Set is the ports that one cluster holds, on one host.
type Set struct {
	host   string
	folder string
	locks  []*durable.Lock
	held   map[int]bool
}

// NewSet makes an empty set for a host (an IP address to listen on).
func NewSet(host string) (*Set, error) {
	folder := filepath.Join(os.TempDir(), "berth-localcluster-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for port locks: %w", err)
	}
	return &Set{host: host, folder: folder, held: map[int]bool{}}, nil
}

// Take holds one given port. It waits a moment for a port that is just being
// given up, by the children of a killed supervisor for example.
func (s *Set) Take(port int, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := s.hold(port)
		if err == nil || s.held[port] || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TakeFree holds and returns a free port: preferred when that is free (0 for
// no preference), else any.
func (s *Set) TakeFree(preferred int) (int, error) {
	if preferred != 0 && s.hold(preferred) == nil {
		return preferred, nil
	}
	for range tries {
		port := lowest + rand.IntN(highest-lowest+1)
		if s.hold(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found on %s between %d and %d after %d tries; end what uses them, or give ports by flags",
		s.host, lowest, highest, tries)
}

// Release gives all ports of the set back.
func (s *Set) Release() {
	for _, lock := range s.locks {
		lock.Unlock()
	}
	s.locks, s.held = nil, map[int]bool{}
}

func (s *Set) hold(port int) error {
	if s.held[port] {
		return fmt.Errorf("port %d is asked for twice", port)
	}
	lock, err := durable.TryLock(filepath.Join(s.folder, strconv.Itoa(port)), strconv.Itoa(os.Getpid()))
	if errors.Is(err, durable.ErrLocked) {
		return fmt.Errorf("port %d belongs to another localcluster that runs", port)
	}
	if err != nil {
		return err
	}
	if err := bindable(s.host, port); err != nil {
		lock.Unlock()
		return err
	}
	s.locks, s.held[port] = append(s.locks, lock), true
	return nil
}

func bindable(host string, port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d can't be used on %s: %w", port, host, err)
	}
	return listener.Close()
}
