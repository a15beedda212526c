package credentials

import (
	"encoding/base64"
	"fmt"

	"berth/deploy/localcluster/internal/durable"
	"sigs.k8s.io/yaml"
)

type named map[string]any

// WriteKubeconfig writes the administrator's kubeconfig for the API server at
// the given URL. It holds the token and the certificate authority themselves
// and verifies TLS, so it works from any folder; only its owner may read it.
func (s *Set) WriteKubeconfig(path, server string) error {
	const name = "berth-localcluster"
	data, err := yaml.Marshal(named{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters": []named{{"name": name, "cluster": named{
			"server":                     server,
			"certificate-authority-data": base64.StdEncoding.EncodeToString(s.CACertificate),
		}}},
		"users":    []named{{"name": "admin", "user": named{"token": s.Token}}},
		"contexts": []named{{"name": name, "context": named{"cluster": name, "user": "admin"}}},
	})
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return durable.WriteFile(path, data, private)
}
