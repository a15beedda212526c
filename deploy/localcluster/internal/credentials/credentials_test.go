package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestTheServingCertificateIsTrustedByTheKubeconfig(t *testing.T) {
	folder := t.TempDir()
	set, err := Prepare(folder, "192.0.2.7")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "kubeconfig")
	if err := set.WriteKubeconfig(path, "https://127.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorityOf(t, path)) {
		t.Fatal("the kubeconfig holds no certificate authority")
	}
	pair, err := tls.LoadX509KeyPair(set.ServingCertificate, set.ServingKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "192.0.2.7"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: bracketed(host)}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "example.org"}); err == nil {
		t.Error("the certificate is good for any host")
	}
}

func bracketed(host string) string {
	if net.ParseIP(host) != nil {
		return "[" + host + "]"
	}
	return host
}

func authorityOf(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kubeconfig struct {
		Clusters []struct {
			Cluster struct {
				Server    string `json:"server"`
				Authority string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		CurrentContext string `json:"current-context"`
	}
	if err := yaml.Unmarshal(text, &kubeconfig); err != nil {
		t.Fatal(err)
	}
	if kubeconfig.Clusters[0].Cluster.Server != "https://127.0.0.1:6443" || kubeconfig.CurrentContext == "" {
		t.Fatalf("got %+v", kubeconfig)
	}
	authority, err := base64.StdEncoding.DecodeString(kubeconfig.Clusters[0].Cluster.Authority)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func TestSecretsStayTheSameAndAreForTheirOwnerOnly(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "secrets")
	first, err := Prepare(folder)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Prepare(folder)
	if err != nil {
		t.Fatal(err)
	}
	if first.Token != second.Token || string(first.CACertificate) != string(second.CACertificate) {
		t.Error("a second start made new secrets")
	}
	if len(first.Token) != 2*tokenBytes {
		t.Errorf("the token has %d characters", len(first.Token))
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := first.WriteKubeconfig(kubeconfig, "https://localhost:1"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{first.TokenFile, first.ServingKey, first.ServiceAccountKey, first.caKeyFilePath, kubeconfig} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", filepath.Base(path), info.Mode().Perm())
		}
	}
}

func TestTwoClustersHaveDifferentSecrets(t *testing.T) {
	one, err := Prepare(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other, err := Prepare(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if one.Token == other.Token || strings.TrimSpace(one.Token) == "" {
		t.Error("the tokens don't differ")
	}
}
