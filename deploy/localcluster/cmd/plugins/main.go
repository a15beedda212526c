// Command plugins runs kube-scheduler's own filter and score plugins on cases
// that are read from standard input, a JSON object a line, and prints what each
// plugin says of each node, a line for each case in the same order. With the
// argument "preemption" it prints instead which Pods would be preempted for the
// case's Pod, and where; with "quantities" it reads JSON strings, a line each,
// and prints what Kubernetes takes them for; with "placements" it reads the states
// of clusters, and prints which Pods are where they may not be (tests/placements.py).
//
// It is what Berth's own rules are compared with (tests/differential). The
// plugins, the framework that makes them and the snapshot they read are
// upstream's, untouched; there is no API server: the listers' stores are filled
// with the objects of the case.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

const (
	usage = "usage: plugins [preemption | quantities | placements]; reads lines of JSON from standard input, see deploy/localcluster/README.md"

	queued     = 64      // lines that may wait, for each worker
	bufferSize = 1 << 20 // bytes

	// Cases make much garbage and hardly anything that stays.
	collectAt = 400
)

func main() {
	debug.SetGCPercent(collectAt)
	newWork, known := map[string]func() (work, error){
		"": newEvaluation, "quantities": newParsing, "placements": newChecking, "preemption": newPreemption,
	}[argument()]
	if !known {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, newWork); err != nil {
		fmt.Fprintln(os.Stderr, "plugins:", err)
		os.Exit(1)
	}
}

func argument() string {
	switch len(os.Args) {
	case 1:
		return ""
	case 2:
		return os.Args[1]
	}
	return "too many"
}

// work gives the answer to one line. Each worker has its own, because plugins
// keep what they read the objects from.
type work func(line []byte) []byte

func newEvaluation() (work, error) {
	evaluator, err := newEvaluator(context.Background())
	if err != nil {
		return nil, err
	}
	return answering(readExample, evaluator.evaluate), nil
}

// answering makes a work of what reads a line and what is found for it. Plugins
// may panic on what no API server lets through: that is an answer too.
func answering[Read, Found any](read func([]byte) (Read, error), find func(Read) (Found, error)) work {
	return func(line []byte) (answer []byte) {
		defer func() {
			if fault := recover(); fault != nil {
				answer = failure(fmt.Errorf("%v\n%s", fault, debug.Stack()))
			}
		}()
		asked, err := read(line)
		if err != nil {
			return failure(err)
		}
		found, err := find(asked)
		if err != nil {
			return failure(err)
		}
		return encode(found)
	}
}

func newParsing() (work, error) { return parseQuantity, nil }

type job struct {
	line   []byte
	answer chan []byte
}

// run answers all lines, several at once, in the order they came.
func run(input io.Reader, output io.Writer, newWork func() (work, error)) error {
	workers := runtime.GOMAXPROCS(0)
	waiting := make(chan job, workers*queued)
	ordered := make(chan job, workers*queued)
	for range workers {
		answer, err := newWork()
		if err != nil {
			return err
		}
		go func() {
			for next := range waiting {
				next.answer <- answer(next.line)
			}
		}()
	}
	reading := make(chan error, 1)
	go func() { reading <- readLines(input, waiting, ordered) }()

	writer := bufio.NewWriterSize(output, bufferSize)
	for next := range ordered {
		writer.Write(<-next.answer)
		if err := writer.WriteByte('\n'); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
		if len(ordered) == 0 { // who asks one case at a time waits for this
			if err := writer.Flush(); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
	}
	if err := writer.Flush(); err != nil {
		return fmt.Errorf("writing the answers: %w", err)
	}
	return <-reading
}

// readLines puts every line that isn't empty into both channels.
func readLines(input io.Reader, waiting, ordered chan<- job) error {
	defer close(waiting)
	defer close(ordered)
	reader := bufio.NewReaderSize(input, bufferSize)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			next := job{line, make(chan []byte, 1)}
			ordered <- next
			waiting <- next
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading cases: %w", err)
		}
	}
}
