package process

import (
	"bytes"
	"io"
	"os"
	"strings"
)

const tailBytes = 64 << 10

// Tail is the last lines of a log file, at most count of them.
func Tail(path string, count int) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		file.Seek(-tailBytes, io.SeekEnd)
	}
	data, _ := io.ReadAll(file)
	data = bytes.TrimRight(data, "\n")
	if len(data) == 0 {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	return lines[max(0, len(lines)-count):]
}
