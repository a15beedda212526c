// Package status keeps the file that says what a local cluster is doing, for
// pages and tests that show it or wait for it.
package status

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"berth/deploy/localcluster/internal/durable"
)

// Phases of a cluster.
const (
	Building = "building"
	Starting = "starting"
	Ready    = "ready"
	Failed   = "failed"
	Stopped  = "stopped"
)

// States of a component, besides Starting, Ready and Stopped.
const Restarting = "restarting"

// Component is one program of the cluster.
type Component struct {
	PID      int    `json:"pid"`
	Port     int    `json:"port"`
	PeerPort int    `json:"peer_port,omitempty"`
	State    string `json:"state"`
	Restarts int    `json:"restarts"`
}

// Document is the content of the file.
type Document struct {
	Phase      string               `json:"phase"`
	Step       string               `json:"step"`
	Message    string               `json:"message"`
	Done       int                  `json:"done"`
	Total      int                  `json:"total"`
	UpdatedAt  time.Time            `json:"updated_at"`
	PID        int                  `json:"pid"`
	Kubeconfig string               `json:"kubeconfig"`
	Components map[string]Component `json:"components"`
}

// File is the status file of one cluster. Its methods may be called from any
// goroutine.
type File struct {
	path  string
	mutex sync.Mutex
	now   Document
}

// New makes the file's first state; nothing is written yet.
func New(path string) *File {
	return &File{path: path, now: Document{
		Phase: Starting, PID: os.Getpid(), Components: map[string]Component{},
	}}
}

// Read gives the document that the file at path holds.
func Read(path string) (Document, error) {
	var document Document
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &document)
	}
	return document, err
}

// Change lets edit change the document and writes it.
func (f *File) Change(edit func(*Document)) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	edit(&f.now)
	f.now.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	data, err := json.MarshalIndent(f.now, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(f.path, append(data, '\n'), 0o644)
}

// ChangeComponent lets edit change one component and writes the document.
func (f *File) ChangeComponent(name string, edit func(*Component)) error {
	return f.Change(func(document *Document) {
		component := document.Components[name]
		edit(&component)
		document.Components[name] = component
	})
}

// Current is the document as it was last changed.
func (f *File) Current() Document {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	copied := f.now
	copied.Components = map[string]Component{}
	for name, component := range f.now.Components {
		copied.Components[name] = component
	}
	return copied
}
