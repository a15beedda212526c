// Package schedulerconfig adapts a KubeSchedulerConfiguration to a local
// cluster: kube-scheduler takes its kubeconfig and leader election from the
// file only, its flags for them are ignored when --config is given
// (k8s.io/kubernetes/cmd/kube-scheduler/app/options).
package schedulerconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	kind     = "KubeSchedulerConfiguration"
	group    = "kubescheduler.config.k8s.io/"
	standard = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
)

// Default is the configuration of a cluster that was given none: upstream's
// defaults.
func Default() []byte { return []byte(standard) }

// Rewrite returns the configuration (YAML or JSON) as YAML with
// clientConnection.kubeconfig set to kubeconfig, and leader election off unless
// the configuration says itself whether to elect. All else stays as it is.
func Rewrite(configuration []byte, kubeconfig string) ([]byte, error) {
	document, err := parse(configuration)
	if err != nil {
		return nil, err
	}
	connection, err := section(document, "clientConnection")
	if err != nil {
		return nil, err
	}
	connection["kubeconfig"] = kubeconfig
	election, err := section(document, "leaderElection")
	if err != nil {
		return nil, err
	}
	if _, given := election["leaderElect"]; !given {
		election["leaderElect"] = false
	}
	return yaml.Marshal(document)
}

func parse(configuration []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(configuration)
	if err != nil {
		return nil, fmt.Errorf("the scheduler configuration is neither YAML nor JSON: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber() // keep numbers as they are written
	var document map[string]any
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("the scheduler configuration is not an object: %w", err)
	}
	version, _ := document["apiVersion"].(string)
	if document["kind"] != kind || !strings.HasPrefix(version, group) {
		return nil, fmt.Errorf("the scheduler configuration has kind %v and apiVersion %v; it needs kind: %s and apiVersion: %sv1",
			document["kind"], document["apiVersion"], kind, group)
	}
	return document, nil
}

func section(document map[string]any, name string) (map[string]any, error) {
	value, given := document[name]
	if !given || value == nil {
		value = map[string]any{}
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		return nil, fmt.Errorf("the scheduler configuration's %s is not an object", name)
	}
	document[name] = object
	return object, nil
}
