package assets

import (
	"os/exec"
	"syscall"
)

// interrupt ends a go command and, when it leads a process group, the
// compilers it runs.
func interrupt(command *exec.Cmd) {
	if command.SysProcAttr != nil && command.SysProcAttr.Setpgid {
		syscall.Kill(-command.Process.Pid, syscall.SIGTERM)
		return
	}
	command.Process.Signal(syscall.SIGTERM)
}
