// Command kubernetes is etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager in one binary: the name it is called by (argv[0])
// says which of them it is.
//
// One binary instead of four because they share most of their packages: it
// links in a fraction of the time and takes a fifth of the disk. The commands
// themselves are upstream's own, untouched: k8s.io/kubernetes/cmd/*/app and
// go.etcd.io/etcd/server/v3/etcdmain.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric on /metrics
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs are the names this binary answers to.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
}

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	program, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kubernetes: called as %q; call it by one of these names (a symbolic link is enough): %s\n",
			name, strings.Join(programNames(), ", "))
		os.Exit(2)
	}
	program()
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func programNames() []string {
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
