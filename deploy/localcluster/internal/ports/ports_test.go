package ports

import (
	"net"
	"strings"
	"testing"
)

func newSet(t *testing.T) *Set {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	set, err := NewSet("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Release)
	return set
}

func TestFreePortsAreDifferentAndBelowTheRangeOfOutgoingConnections(t *testing.T) {
	set := newSet(t)
	seen := map[int]bool{}
	for range 50 {
		port, err := set.TakeFree(0)
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < lowest || port > highest {
			t.Fatalf("got port %d", port)
		}
		seen[port] = true
	}
}

func TestTwoSetsDontShareAPort(t *testing.T) {
	one := newSet(t)
	port, err := one.TakeFree(0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSet("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if err := other.Take(port, 0); err == nil || !strings.Contains(err.Error(), "another localcluster") {
		t.Fatalf("taking a held port gave %v", err)
	}
	if again, err := other.TakeFree(port); err != nil || again == port {
		t.Fatalf("got %d, %v", again, err)
	}
	one.Release()
	if err := other.Take(port, 0); err != nil {
		t.Fatalf("a released port is not free: %v", err)
	}
}

func TestAPortInUseIsRefused(t *testing.T) {
	set := newSet(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := set.Take(listener.Addr().(*net.TCPAddr).Port, 0); err == nil {
		t.Fatal("a port in use was taken")
	}
}

func TestAPortAskedForTwiceIsRefusedAtOnce(t *testing.T) {
	set := newSet(t)
	port, err := set.TakeFree(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Take(port, 1<<40); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Fatalf("got %v", err)
	}
}
