package cluster

import (
	"context"
	"net"
	"path/filepath"
	"strconv"

	"berth/deploy/localcluster/internal/assets"
	"berth/deploy/localcluster/internal/credentials"
	"berth/deploy/localcluster/internal/process"
)

// layout is all that the components' command lines are made from.
type layout struct {
	options  Options
	ports    Ports
	binaries assets.Binaries
	secrets  *credentials.Set
	api      *client
}

// component is a program and the port that it answers on.
type component struct {
	program process.Program
	port    int
}

// components are the ones that the options ask for, in starting order:
// kube-scheduler is last, so that it finds the nodes there.
func (l *layout) components() []component {
	all := []component{l.etcd(), l.apiServer()}
	if l.options.ControllerManager {
		all = append(all, l.controllerManager())
	}
	if l.options.Kwok {
		all = append(all, l.kwok())
	}
	if l.options.Scheduler {
		all = append(all, l.scheduler())
	}
	return all
}

func (l *layout) component(name string, port int, ready func(context.Context) error, arguments ...string) component {
	return component{port: port, program: process.Program{
		Name:    name,
		Path:    l.binaries.Path(name),
		Args:    append([]string{name}, arguments...),
		LogFile: l.logFile(name),
		Ready:   ready,
		Restart: !l.options.NoRestart[name],
	}}
}

// etcd stores for as long as the folder lives: it doesn't wait for the disk,
// so a power failure may cost data, a kill doesn't. It asks nobody who they
// are, so it never listens on all addresses, whatever --host says.
func (l *layout) etcd() component {
	client := l.reachableURL("http", l.ports.Etcd)
	peer := l.reachableURL("http", l.ports.EtcdPeer)
	return l.component(Etcd, l.ports.Etcd, healthy(plainHTTP(), client+"/readyz"),
		"--name=localcluster",
		"--data-dir="+l.in("etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=localcluster="+peer,
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
}

// apiServer leaves out two admission plugins on purpose. ServiceAccount: pods
// need no service account that a controller made first. TaintNodesByCondition:
// it gives every new node the taint node.kubernetes.io/not-ready, which only
// the node lifecycle controller takes away, and that one doesn't run here.
func (l *layout) apiServer() component {
	return l.component(APIServer, l.ports.APIServer, l.apiServerReady,
		"--bind-address="+l.options.Host,
		"--secure-port="+strconv.Itoa(l.ports.APIServer),
		"--advertise-address="+reachable(l.options.Host),
		"--endpoint-reconciler-type=none", // loopback isn't allowed in Endpoints
		"--etcd-servers="+l.reachableURL("http", l.ports.Etcd),
		"--tls-cert-file="+l.secrets.ServingCertificate,
		"--tls-private-key-file="+l.secrets.ServingKey,
		"--token-auth-file="+l.secrets.TokenFile,
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+l.secrets.ServiceAccountPublic,
		"--service-account-signing-key-file="+l.secrets.ServiceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
	)
}

// scheduler takes all but its port from the configuration file.
func (l *layout) scheduler() component {
	arguments := append(l.delegated(l.ports.Scheduler), "--config="+l.schedulerConfig())
	return l.component(Scheduler, l.ports.Scheduler,
		healthy(l.api.http, l.reachableURL("https", l.ports.Scheduler)+"/readyz"), arguments...)
}

// controllerManager runs all ordinary controllers but node lifecycle: that one
// would taint every node and evict its pods when a test stops kwok or makes
// the machine slow, and the tests set node conditions and taints themselves.
func (l *layout) controllerManager() component {
	arguments := append(l.delegated(l.ports.ControllerManager),
		"--kubeconfig="+l.kubeconfig(),
		"--leader-elect=false",
		"--controllers=*,-node-lifecycle-controller",
		"--service-account-private-key-file="+l.secrets.ServiceAccountKey,
		"--root-ca-file="+l.secrets.CACertificateFile,
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	)
	return l.component(ControllerManager, l.ports.ControllerManager,
		healthy(l.api.http, l.reachableURL("https", l.ports.ControllerManager)+"/healthz"), arguments...)
}

// delegated are the arguments of a component that asks the API server who may
// read its metrics.
func (l *layout) delegated(port int) []string {
	return []string{
		"--bind-address=" + l.options.Host,
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + l.secrets.ServingCertificate,
		"--tls-private-key-file=" + l.secrets.ServingKey,
		"--authentication-kubeconfig=" + l.kubeconfig(),
		"--authorization-kubeconfig=" + l.kubeconfig(),
	}
}

// kwok keeps no leases (--node-lease-duration-seconds=0): it manages only nodes
// whose lease it holds, so after a kill a new one would wait for the old one's
// leases to expire before it did anything. The folder given by KWOK_WORKDIR
// keeps it from reading the user's own ~/.kwok.
func (l *layout) kwok() component {
	component := l.component(Kwok, l.ports.Kwok,
		healthy(plainHTTP(), l.reachableURL("http", l.ports.Kwok)+"/healthz"),
		"--kubeconfig="+l.kubeconfig(),
		"--config="+l.kwokConfig(),
		"--manage-all-nodes=true",
		"--node-lease-duration-seconds=0",
		"--node-ip="+reachable(l.options.Host),
		"--cidr=10.128.0.0/9",
		"--server-address="+net.JoinHostPort(reachable(l.options.Host), strconv.Itoa(l.ports.Kwok)),
	)
	component.program.Env = []string{"KWOK_WORKDIR=" + l.in("kwok")}
	return component
}

func (l *layout) in(name string) string { return filepath.Join(l.options.Folder, name) }
func (l *layout) logFile(name string) string {
	return filepath.Join(l.options.Folder, "logs", name+".log")
}
func (l *layout) kubeconfig() string      { return l.in("kubeconfig") }
func (l *layout) kwokConfig() string      { return l.in("kwok.yaml") }
func (l *layout) schedulerConfig() string { return l.in("scheduler-config.yaml") }

// reachableURL is where a program on this machine finds the port.
func (l *layout) reachableURL(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort(reachable(l.options.Host), strconv.Itoa(port))
}

// reachable is an address of this machine behind an address to listen on.
func reachable(host string) string {
	address := net.ParseIP(host)
	switch {
	case address == nil || !address.IsUnspecified():
		return host
	case address.To4() == nil:
		return "::1"
	}
	return "127.0.0.1"
}
