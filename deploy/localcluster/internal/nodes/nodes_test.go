package nodes

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNumberedNodesGoThroughTheZones(t *testing.T) {
	made, err := Numbered(4)
	if err != nil {
		t.Fatal(err)
	}
	var zones []string
	for _, node := range made {
		var document struct {
			Metadata struct{ Labels map[string]string }
			Status   struct{ Allocatable map[string]string }
		}
		if err := json.Unmarshal(node.Body, &document); err != nil {
			t.Fatal(err)
		}
		if document.Metadata.Labels["kubernetes.io/hostname"] != node.Name || !node.Ready {
			t.Errorf("%s: %s", node.Name, node.Body)
		}
		if document.Status.Allocatable["cpu"] != "4" || document.Status.Allocatable["memory"] != "16Gi" {
			t.Errorf("%s: %s", node.Name, node.Body)
		}
		zones = append(zones, document.Metadata.Labels["topology.kubernetes.io/zone"])
	}
	if strings.Join(zones, "") != "abca" || made[3].Name != "node-4" {
		t.Errorf("zones %v, last %s", zones, made[3].Name)
	}
}

func TestParseTakesAllForms(t *testing.T) {
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: %}\nstatus: {capacity: {cpu: 2}}\n"
	named := func(name string) string { return strings.Replace(node, "%", name, 1) }
	for form, text := range map[string]string{
		"one":       named("a"),
		"documents": "---\n" + named("a") + "---\n" + named("b") + "---\n",
		"list":      "kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n- metadata: {name: b}\n",
		"JSON":      `{"kind":"NodeList","items":[{"metadata":{"name":"a","resourceVersion":"7"},"status":{"allocatable":{"cpu":9007199254740993}}}]}`,
	} {
		parsed, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		if parsed[0].Name != "a" || !parsed[0].Ready || strings.Contains(string(parsed[0].Body), "resourceVersion") {
			t.Errorf("%s: %s", form, parsed[0].Body)
		}
		if form == "JSON" && !strings.Contains(string(parsed[0].Body), "9007199254740993") {
			t.Errorf("a number was changed: %s", parsed[0].Body)
		}
	}
}

func TestANodeMaySayItsReadinessItself(t *testing.T) {
	parsed, err := Parse([]byte("kind: Node\nmetadata: {name: a}\nstatus: {conditions: [{type: Ready, status: Unknown}]}\n"))
	if err != nil || parsed[0].Ready {
		t.Errorf("got %+v, %v", parsed, err)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	for text, part := range map[string]string{
		"kind: Pod":                        `kind is "Pod"`,
		"kind: Node":                       "metadata.name",
		"kind: List\nitems: [{kind: Pod}]": "items[0]: kind is Pod",
		"":                                 "no Node",
		"a: [":                             "neither YAML nor JSON",
		"kind: Node\nmetadata: {name: a}\n---\n7": "document 2",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q gave %v, want %q", text, err, part)
		}
	}
}
