// steadycaller calls an extender over and over, with Go's own transport as
// kube-scheduler sets it up (kube-scheduler v1.36.3 pkg/scheduler/extender.go
// makeTransport, apimachinery v0.36.3 util/net SetTransportDefaults), until its
// standard input ends. It then writes how many calls it made and which failed.
// What the transport repeats by itself, as kube-scheduler's does, is no failure.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

type result struct {
	Calls       int      `json:"calls"`
	Connections int      `json:"connections"`
	Failures    []string `json:"failures"`
}

type caller struct {
	url    string
	body   []byte
	client *http.Client
	mutex  sync.Mutex
	result result
}

func main() {
	url := flag.String("url", "", "the verb's URL")
	body := flag.String("body", "", "file with the body of each call")
	authority := flag.String("ca", "", "file with the server's authority")
	client := flag.String("client", "", "file with the client's certificate and key")
	workers := flag.Int("workers", 4, "callers at the same time")
	flag.Parse()
	sent, err := os.ReadFile(*body)
	if err != nil {
		fail(err)
	}
	transport, err := makeTransport(*authority, *client)
	if err != nil {
		fail(err)
	}
	caller := &caller{url: *url, body: sent, client: &http.Client{Transport: transport, Timeout: 5 * time.Second}}
	caller.result.Failures = []string{}
	caller.countConnections(transport)
	caller.run(*workers)
	if err := json.NewEncoder(os.Stdout).Encode(caller.result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "steadycaller:", err)
	os.Exit(1)
}

func makeTransport(authority, client string) (*http.Transport, error) {
	transport := &http.Transport{IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second}
	if authority == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", authority)
	}
	pair, err := tls.LoadX509KeyPair(client, client)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}
	transport.ForceAttemptHTTP2 = true
	return transport, nil
}

func (c *caller) countConnections(transport *http.Transport) {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c.mutex.Lock()
		c.result.Connections++
		c.mutex.Unlock()
		return dialer.DialContext(ctx, network, address)
	}
}

func (c *caller) run(workers int) {
	enough := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(enough)
	}()
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			// The last one calls seldom, so that its connection is idle when a server ends.
			pause := time.Duration(1+worker) * time.Millisecond
			if worker == workers-1 {
				pause = 700 * time.Millisecond
			}
			for {
				c.call()
				select {
				case <-enough:
					return
				case <-time.After(pause):
				}
			}
		})
	}
	all.Wait()
}

func (c *caller) call() {
	failure := c.try()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.result.Calls++
	if failure != "" {
		c.result.Failures = append(c.result.Failures, time.Now().Format("15:04:05.000 ")+failure)
	}
}

func (c *caller) try() string {
	request, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(c.body))
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Sprintf("code %d", response.StatusCode)
	}
	var answer struct{ Error string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err.Error()
	}
	return answer.Error
}
