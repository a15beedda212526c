//go:build !linux

package process

import "syscall"

// Attributes puts the program in a process group of its own, so that Ctrl-C in
// a terminal reaches the supervisor only, which then ends the programs in
// order. There is no parent-death signal here: programs outlive a supervisor
// that is killed by SIGKILL.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
