// Package credentials makes and keeps the secrets of one local cluster: its
// certificate authority, serving certificate, service-account key and the
// administrator's token.
//
// They are made at the first start and kept, so that a kubeconfig stays valid
// when the same folder is started again; the serving certificate is new each
// time, for the host it is served on.
package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/deploy/localcluster/internal/durable"
)

const (
	lifetime   = 10 * 365 * 24 * time.Hour
	tokenBytes = 32
	private    = 0o600
)

// Set names the files of a cluster's secrets, and holds those that the
// supervisor itself uses.
type Set struct {
	CACertificateFile     string
	ServingCertificate    string
	ServingKey            string
	ServiceAccountKey     string // private; signs service-account tokens
	ServiceAccountPublic  string
	TokenFile             string // kube-apiserver's --token-auth-file
	CACertificate         []byte // PEM
	Token                 string
	certificate           *x509.Certificate
	key                   *ecdsa.PrivateKey
	folder, caKeyFilePath string
}

// Prepare makes what is missing in folder and returns all of it. The serving
// certificate is for hosts besides 127.0.0.1 and localhost.
func Prepare(folder string, hosts ...string) (*Set, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for secrets: %w", err)
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	set := &Set{
		CACertificateFile:    in("ca.crt"),
		ServingCertificate:   in("serving.crt"),
		ServingKey:           in("serving.key"),
		ServiceAccountKey:    in("service-account.key"),
		ServiceAccountPublic: in("service-account.pub"),
		TokenFile:            in("tokens.csv"),
		folder:               folder,
		caKeyFilePath:        in("ca.key"),
	}
	for _, step := range []func() error{
		set.authority,
		func() error { return set.serving(hosts) },
		set.serviceAccount,
		set.token,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("preparing the secrets in %s: %w (remove the folder to have new ones made)", folder, err)
		}
	}
	return set, nil
}

func (s *Set) authority() error {
	if s.loadAuthority() == nil {
		return nil
	}
	key, err := newKey(s.caKeyFilePath)
	if err != nil {
		return err
	}
	template := certificateTemplate("berth-localcluster")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if err := writePEM(s.CACertificateFile, "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return s.loadAuthority()
}

func (s *Set) loadAuthority() error {
	certificatePEM, err := os.ReadFile(s.CACertificateFile)
	if err != nil {
		return err
	}
	key, err := readKey(s.caKeyFilePath)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(certificatePEM)
	if block == nil {
		return fmt.Errorf("%s holds no certificate", s.CACertificateFile)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(certificate.PublicKey) {
		return fmt.Errorf("%s and its key don't belong together", s.CACertificateFile)
	}
	s.CACertificate, s.certificate, s.key = certificatePEM, certificate, key
	return nil
}

func (s *Set) serving(hosts []string) error {
	key, err := newKey(s.ServingKey)
	if err != nil {
		return err
	}
	template := certificateTemplate("berth-localcluster serving")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, key.Public(), s.key)
	if err != nil {
		return err
	}
	return writePEM(s.ServingCertificate, "CERTIFICATE", der, 0o644)
}

func (s *Set) serviceAccount() error {
	key, err := readKey(s.ServiceAccountKey)
	if err != nil {
		key, err = newKey(s.ServiceAccountKey)
	}
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return writePEM(s.ServiceAccountPublic, "PUBLIC KEY", der, 0o644)
}

// token keeps the administrator's token in the form that kube-apiserver reads:
// token,user name,user id,"groups".
func (s *Set) token() error {
	line, err := os.ReadFile(s.TokenFile)
	if token, _, found := strings.Cut(string(line), ","); err == nil && found && len(token) == 2*tokenBytes {
		s.Token = token
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	s.Token = hex.EncodeToString(random)
	return durable.WriteFile(s.TokenFile, []byte(s.Token+",admin,admin,\"system:masters\"\n"), private)
}

func certificateTemplate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
	}
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "EC PRIVATE KEY", der, private)
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return durable.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
