package schedulerconfig

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const given = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /elsewhere, qps: 750.5, burst: 1000}
percentageOfNodesToScore: 100
podMaxBackoffSeconds: 1
extenders:
- urlPrefix: https://127.0.0.1:8443/extender
  filterVerb: filter
  weight: 9007199254740993
  httpTimeout: 5s
  enableHTTPS: true
  tlsConfig: {caFile: ca.crt, certFile: client.crt, keyFile: client.key}
  managedResources: [{name: example.org/gpu, ignoredByScheduler: true}]
profiles:
- schedulerName: berth
`

func TestOnlyTheConnectionAndTheElectionChange(t *testing.T) {
	rewritten, err := Rewrite([]byte(given), "/cluster/kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	expected := strings.Replace(given, "/elsewhere", "/cluster/kubeconfig", 1) + "leaderElection: {leaderElect: false}\n"
	if got, want := canonical(t, rewritten), canonical(t, []byte(expected)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(string(rewritten), "9007199254740993") {
		t.Errorf("a number was changed:\n%s", rewritten)
	}
}

func canonical(t *testing.T, text []byte) string {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(asJSON)
}

func TestJSONAndAnElectionThatIsGiven(t *testing.T) {
	text := `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration",
		"leaderElection":{"leaderElect":true,"leaseDuration":"5s"}}`
	rewritten, err := Rewrite([]byte(text), "/k")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"leaderElect: true", "leaseDuration: 5s", "kubeconfig: /k"} {
		if !strings.Contains(string(rewritten), part) {
			t.Errorf("%q is missing in\n%s", part, rewritten)
		}
	}
}

func TestTheDefaultIsAccepted(t *testing.T) {
	if _, err := Rewrite(Default(), "/k"); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for text, part := range map[string]string{
		"kind: Pod\napiVersion: v1":           "kind Pod",
		"[1, 2]":                              "not an object",
		"a: [":                                "neither YAML nor JSON",
		head + "clientConnection: fast":       "clientConnection",
		head + "leaderElection: []":           "leaderElection",
		head + "extenders: []\nextenders: []": "already set",
		"":                                    "kind <nil>",
	} {
		_, err := Rewrite([]byte(text), "/k")
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q gave %v, want %q", text, err, part)
		}
	}
}
