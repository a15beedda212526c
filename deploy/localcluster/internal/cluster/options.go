// Package cluster starts a Kubernetes control plane of real parts on this
// machine, keeps it running and ends it.
package cluster

import "time"

// Names of the components, which are also the names of their log files.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	Scheduler         = "kube-scheduler"
	ControllerManager = "kube-controller-manager"
	Kwok              = "kwok"
)

// Names lists all components in the order in which they are started.
var Names = []string{Etcd, APIServer, ControllerManager, Kwok, Scheduler}

// Ports of the components; 0 means a free one.
type Ports struct {
	Etcd, EtcdPeer, APIServer, Scheduler, ControllerManager, Kwok int
}

// Options say what cluster to run.
type Options struct {
	Folder            string // absolute
	Host              string // an IP address to listen on
	Ports             Ports
	SchedulerConfig   string // a file; empty for upstream's defaults
	Scheduler         bool
	ControllerManager bool
	Kwok              bool
	Nodes             int    // how many ordinary nodes to create
	NodesFile         string // or the file that has them
	ReadyTimeout      time.Duration
	Kubeconfig        string // absolute
	Fresh             bool   // remove what an earlier run stored
	NoRestart         map[string]bool
}
