package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// printEvery keeps the printed progress readable where it lands in a log.
const printEvery = 5 * time.Second

// printer prints the progress of a build: each new kind of step at once, and
// the counting within one now and then.
type printer struct {
	output  io.Writer
	begun   time.Time
	last    time.Time
	kind    string
	waiting string
}

func newPrinter(output io.Writer) *printer {
	return &printer{output: output, begun: time.Now()}
}

func (p *printer) tell(message string, done, total int) {
	kind := "compiling"
	if total == 0 {
		kind, _, _ = strings.Cut(message, " ")
	}
	finished := total > 0 && done == total
	if message == p.waiting || kind == p.kind && !finished && time.Since(p.last) < printEvery {
		return
	}
	p.kind, p.last, p.waiting = kind, time.Now(), message
	fmt.Fprintf(p.output, "%s (%.0f s)\n", message, time.Since(p.begun).Seconds())
}
