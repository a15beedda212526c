package cluster

import (
	"strings"
	"testing"

	"berth/deploy/localcluster/internal/ports"
	"berth/deploy/localcluster/internal/process"
	"berth/deploy/localcluster/internal/status"
)

func TestPortsOfAnEarlierRunAreTakenAgainUnlessGiven(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	held, err := ports.NewSet("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	free, err := held.TakeFree(0)
	if err != nil {
		t.Fatal(err)
	}
	held.Release()
	earlier := status.Document{Components: map[string]status.Component{Etcd: {Port: free}, APIServer: {Port: 1}}}
	chosen, err := choosePorts(Options{Host: "127.0.0.1"}, held, earlier)
	if err != nil {
		t.Fatal(err)
	}
	if chosen.Etcd != free {
		t.Errorf("etcd got %d, had %d", chosen.Etcd, free)
	}
	seen := map[int]bool{}
	for _, port := range []int{chosen.Etcd, chosen.EtcdPeer, chosen.APIServer, chosen.Scheduler, chosen.ControllerManager, chosen.Kwok} {
		if port == 0 || seen[port] {
			t.Errorf("ports %+v", chosen)
		}
		seen[port] = true
	}
	_, err = choosePorts(Options{Host: "127.0.0.1", Ports: Ports{Kwok: free}}, held, earlier)
	if err == nil || !strings.Contains(err.Error(), "--kwok-port") {
		t.Errorf("a port in use gave %v", err)
	}
}

func TestAnAddressForAllIsReachedByLoopback(t *testing.T) {
	for host, address := range map[string]string{"0.0.0.0": "127.0.0.1", "::": "::1", "192.0.2.1": "192.0.2.1"} {
		if got := reachable(host); got != address {
			t.Errorf("%s is reached by %s", host, got)
		}
	}
}

func TestTheClusterIsReadyWhenNoComponentIsOnItsWay(t *testing.T) {
	c := &Cluster{}
	document := status.Document{Components: map[string]status.Component{
		Etcd: {State: status.Ready}, Kwok: {State: status.Restarting},
	}}
	if c.settle(&document, "kwok ended"); document.Phase != status.Starting || document.Message != "kwok ended" {
		t.Errorf("got %+v", document)
	}
	document.Components[Kwok] = status.Component{State: status.Stopped} // by --no-restart
	if c.settle(&document, ""); document.Phase != status.Ready || document.Message != "ready" {
		t.Errorf("got %+v", document)
	}
}

func TestAStartAfterADeathIsARestart(t *testing.T) {
	for _, one := range []struct {
		event process.Event
		state string
	}{
		{process.Event{State: process.Started}, status.Starting},
		{process.Event{State: process.Started, Restarts: 1}, status.Restarting},
		{process.Event{State: process.Ready, Restarts: 1}, status.Ready},
		{process.Event{State: process.Ended}, status.Stopped},
	} {
		if got := stateName(one.event); got != one.state {
			t.Errorf("%+v gave %s", one.event, got)
		}
	}
}
