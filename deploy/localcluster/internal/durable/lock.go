package durable

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock is an exclusive lock on a file. The kernel gives it back when its holder
// ends in whatever way, so a killed process leaves no stale lock behind.
type Lock struct{ file *os.File }

// TryLock takes the lock on the file at path, or says at once that it is taken
// (ErrLocked). The file holds the holder's note, for whoever is refused.
func TryLock(path, note string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if file.Truncate(0) == nil {
		file.WriteAt([]byte(note+"\n"), 0)
	}
	return &Lock{file}, nil
}

// Holder is the note that the present or last holder of the lock left.
func Holder(path string) string {
	note, _ := os.ReadFile(path)
	return strings.TrimSpace(string(note))
}

// Unlock gives the lock back. The file stays: removing it would let two
// processes hold "the" lock on two different files of the same name.
func (l *Lock) Unlock() {
	l.file.Close()
}
