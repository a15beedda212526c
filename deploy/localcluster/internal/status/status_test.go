package status

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestTheFileIsWholeWhileItIsChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	file := New(path)
	change := func() error {
		return file.Change(func(document *Document) {
			document.Done++
			document.Message = strings.Repeat("x", document.Done*50)
			document.Components["etcd"] = Component{PID: document.Done, State: Ready}
		})
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 50 {
				change()
			}
		})
	}
	for range 200 {
		document, err := Read(path)
		if err != nil {
			t.Fatalf("a reader met half a file: %v", err)
		}
		if document.Components["etcd"].PID != document.Done {
			t.Fatal("a reader met a mixed document")
		}
	}
	writers.Wait()
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Fatalf("temporary files are left: %v", left)
	}
}

func TestTheFieldsHaveTheirNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	err := New(path).Change(func(document *Document) {
		document.Components["etcd"] = Component{PID: 1, Port: 2, State: Ready}
	})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"phase", "step", "message", "done", "total", "updated_at", "pid", "kubeconfig", "components"} {
		if _, found := fields[name]; !found {
			t.Errorf("%s is missing", name)
		}
	}
}
