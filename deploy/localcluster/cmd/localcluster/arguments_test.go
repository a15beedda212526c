package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestArgumentFaultsNameTheArgumentAndTheForm(t *testing.T) {
	for line, parts := range map[string][]string{
		"":                                    {"no command", "build, up"},
		"down":                                {`unknown command "down"`},
		"build now":                           {"build", `"now"`},
		"up":                                  {"--dir is missing"},
		"up --dir d --nodes ten":              {`"ten"`, "--nodes", "whole number from 0 to 20000"},
		"up --dir d --nodes -1":               {"--nodes", "whole number"},
		"up --dir d --etcd-port 70000":        {"--etcd-port", "0 to 65535"},
		"up --dir d --port-base 65535":        {"--port-base", "0 to 65530"},
		"up --dir d --ready-timeout 90":       {"--ready-timeout", "90s"},
		"up --dir d --host localhost":         {"--host", "127.0.0.1"},
		"up --dir d --no-restart scheduler":   {"--no-restart", `"scheduler"`, "kube-scheduler"},
		"up --dir d --bogus":                  {"--bogus", "localcluster help"},
		"up --dir":                            {"--dir needs a value"},
		"up --dir d extra":                    {`"extra"`},
		"up --dir d --nodes 1 --nodes-file f": {"--nodes-file", "exclude"},
		"up --dir d --no-scheduler --scheduler-config f": {"--no-scheduler", "exclude"},
		"up --dir d --no-scheduler=maybe":                {"--no-scheduler", "maybe"},
	} {
		var faults bytes.Buffer
		code := run(strings.Fields(line), &bytes.Buffer{}, &faults, func(call func()) { call() })
		if code != exitArgument {
			t.Errorf("%q: exit code %d", line, code)
		}
		for _, part := range parts {
			if !strings.Contains(faults.String(), part) {
				t.Errorf("%q gave %q, which lacks %q", line, faults.String(), part)
			}
		}
	}
}

func TestArgumentsAreUnderstood(t *testing.T) {
	command, err := parse(strings.Fields("up --dir d --port-base 7000 --scheduler-port 9000 --nodes 5 --no-kwok " +
		"--no-restart etcd,kwok --ready-timeout 5s --fresh"))
	if err != nil {
		t.Fatal(err)
	}
	options := command.options
	ports := options.Ports
	if ports.Etcd != 7000 || ports.EtcdPeer != 7001 || ports.APIServer != 7002 || ports.Scheduler != 9000 ||
		ports.ControllerManager != 7004 || ports.Kwok != 7005 {
		t.Errorf("ports %+v", ports)
	}
	if options.Kwok || !options.Scheduler || !options.ControllerManager || !options.Fresh || options.Nodes != 5 ||
		options.ReadyTimeout != 5*time.Second || !options.NoRestart["etcd"] || options.NoRestart["kube-apiserver"] {
		t.Errorf("options %+v", options)
	}
	if !filepath.IsAbs(options.Folder) || options.Kubeconfig != filepath.Join(options.Folder, "kubeconfig") {
		t.Errorf("paths %s, %s", options.Folder, options.Kubeconfig)
	}
}

func TestHelpNamesEveryArgument(t *testing.T) {
	for _, line := range []string{"help", "--help", "up --help", "build --help"} {
		var output bytes.Buffer
		if code := run(strings.Fields(line), &output, &output, nil); code != 0 || output.String() != help {
			t.Errorf("%q gave %d, %s", line, code, output.String())
		}
	}
	for _, name := range []string{"dir", "kubeconfig", "host", "port-base", "etcd-port", "etcd-peer-port", "apiserver-port",
		"scheduler-port", "controller-manager-port", "kwok-port", "scheduler-config", "no-scheduler", "no-controller-manager",
		"no-kwok", "nodes", "nodes-file", "no-restart", "ready-timeout", "fresh"} {
		if !strings.Contains(help, "--"+name) {
			t.Errorf("--%s is missing in the help", name)
		}
	}
}

func TestAFileThatCannotBeUsedIsNamedAndEndsWithACodeOfItsOwn(t *testing.T) {
	folder := t.TempDir()
	empty, missing := filepath.Join(folder, "empty.yaml"), filepath.Join(folder, "missing.yaml")
	if err := os.WriteFile(empty, []byte("kind: List\nitems: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][]string{{"--nodes-file", empty}, {"--nodes-file", missing}, {"--scheduler-config", missing}} {
		var faults bytes.Buffer
		arguments := append([]string{"up", "--dir", filepath.Join(folder, "cluster")}, wrong...)
		code := run(arguments, &bytes.Buffer{}, &faults, func(call func()) { call() })
		if code != exitFile || !strings.Contains(faults.String(), wrong[1]) {
			t.Errorf("%v: exit code %d, %s", wrong, code, faults.String())
		}
	}
}
