package process

import "syscall"

// Attributes puts the program in a process group of its own, so that Ctrl-C in
// a terminal reaches the supervisor only, which then ends the programs in
// order; and has the kernel kill it when the supervisor dies.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
