// Package nodes makes, reads and creates the Node objects of a local cluster.
package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"sigs.k8s.io/yaml"
)

// Node is a Node object as it goes to the API: nothing in it is interpreted
// but what the fields below say.
type Node struct {
	Name  string
	Body  []byte // JSON
	Ready bool   // whether kwok will make it ready; else it says its own readiness
}

type object map[string]any

// Numbered makes count ordinary nodes: node-1, node-2, ... over the zones a, b
// and c in turn.
func Numbered(count int) ([]Node, error) {
	nodes := make([]Node, 0, count)
	for number := 1; number <= count; number++ {
		name := fmt.Sprintf("node-%d", number)
		resources := object{"cpu": "4", "memory": "16Gi", "pods": "110"}
		body, err := json.Marshal(object{
			"apiVersion": "v1",
			"kind":       "Node",
			"metadata": object{"name": name, "labels": object{
				"kubernetes.io/hostname":      name,
				"kubernetes.io/arch":          runtime.GOARCH,
				"kubernetes.io/os":            "linux",
				"topology.kubernetes.io/zone": string("abc"[(number-1)%3]),
			}},
			"status": object{"capacity": resources, "allocatable": resources},
		})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, Node{Name: name, Body: body, Ready: true})
	}
	return nodes, nil
}

// Parse reads Node objects from YAML or JSON: one, a List or NodeList, or
// several YAML documents. They are kept as they are but for
// metadata.resourceVersion, with which the API would refuse to create them (a
// file made by "kubectl get nodes -o yaml" has it).
func Parse(text []byte) ([]Node, error) {
	var nodes []Node
	for number, document := range documents(text) {
		asJSON, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("document %d is neither YAML nor JSON: %w", number+1, err)
		}
		if string(bytes.TrimSpace(asJSON)) == "null" {
			continue
		}
		found, err := parseObject(asJSON)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number+1, err)
		}
		nodes = append(nodes, found...)
	}
	if len(nodes) == 0 {
		return nil, errors.New("there is no Node object in it")
	}
	return nodes, nil
}

// documents splits a YAML stream at its "---" lines.
func documents(text []byte) [][]byte {
	var all [][]byte
	var current []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("---")) && len(bytes.TrimSpace(line[3:])) == 0 {
			all, current = append(all, current), nil
			continue
		}
		current = append(current, line...)
	}
	return append(all, current)
}

func parseObject(asJSON []byte) ([]Node, error) {
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(asJSON, &head); err != nil {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	switch head.Kind {
	case "Node":
		node, err := parseNode(asJSON)
		return []Node{node}, err
	case "List", "NodeList":
		nodes := make([]Node, 0, len(head.Items))
		for index, item := range head.Items {
			node, err := parseNode(item)
			if err != nil {
				return nil, fmt.Errorf("items[%d]: %w", index, err)
			}
			nodes = append(nodes, node)
		}
		return nodes, nil
	}
	return nil, fmt.Errorf("kind is %q; want Node, List or NodeList", head.Kind)
}

func parseNode(asJSON []byte) (Node, error) {
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber() // keep numbers as they are written
	var document object
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return Node{}, err
	}
	if kind, given := document["kind"]; given && kind != "Node" {
		return Node{}, fmt.Errorf("kind is %v; want Node", kind)
	}
	document["apiVersion"], document["kind"] = "v1", "Node"
	metadata, _ := document["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if name == "" {
		return Node{}, errors.New("metadata.name is missing")
	}
	delete(metadata, "resourceVersion")
	body, err := json.Marshal(document)
	return Node{Name: name, Body: body, Ready: !saysReadiness(document)}, err
}

// saysReadiness tells whether the object has a Ready condition. kwok leaves
// such a node's status alone.
func saysReadiness(document object) bool {
	status, _ := document["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, condition := range conditions {
		if fields, _ := condition.(map[string]any); fields["type"] == "Ready" {
			return true
		}
	}
	return false
}
