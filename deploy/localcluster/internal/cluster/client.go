package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/deploy/localcluster/internal/credentials"
	"berth/deploy/localcluster/internal/nodes"
)

const (
	requestLimit     = 30 * time.Second
	creatingAtOnce   = 16
	lookAtNodesEvery = 100 * time.Millisecond
	messageLimit     = 300
)

// client talks to the cluster's components as the administrator.
type client struct {
	http *http.Client
	url  string // the API server's
}

// withToken adds the administrator's token to each request.
type withToken struct {
	token string
	next  http.RoundTripper
}

func (t withToken) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+t.token)
	return t.next.RoundTrip(request)
}

func newClient(secrets *credentials.Set, url string) *client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secrets.CACertificate)
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		MaxIdleConnsPerHost: creatingAtOnce,
	}
	return &client{url: url, http: &http.Client{
		Transport: withToken{secrets.Token, transport}, Timeout: requestLimit,
	}}
}

// plainHTTP is a client that goes by no proxy: it talks to this machine.
func plainHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{}, Timeout: requestLimit}
}

// healthy is a readiness check: the URL answers 200.
func healthy(by *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := request(ctx, by, http.MethodGet, url, nil)
		return err
	}
}

// answerError is an answer that isn't a success.
type answerError struct {
	url, message string
	code         int
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %d: %s", e.url, e.code, e.message)
}

func request(ctx context.Context, by *http.Client, method, url string, body []byte) ([]byte, error) {
	asked, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	asked.Header.Set("Content-Type", "application/json")
	answer, err := by.Do(asked)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		return nil, &answerError{url, apiMessage(content), answer.StatusCode}
	}
	return content, nil
}

// apiMessage is the message of a Kubernetes Status, or the text itself.
func apiMessage(content []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(content, &status) == nil && status.Message != "" {
		return status.Message
	}
	text := strings.TrimSpace(string(content))
	if len(text) > messageLimit {
		text = text[:messageLimit] + "…"
	}
	return text
}

// apiServerReady also waits for the namespace "default", which the API server
// makes shortly after it says that it is ready.
func (l *layout) apiServerReady(ctx context.Context) error {
	if err := healthy(l.api.http, l.api.url+"/readyz")(ctx); err != nil {
		return err
	}
	return healthy(l.api.http, l.api.url+"/api/v1/namespaces/default")(ctx)
}

// createNodes creates the nodes; those that exist from an earlier run stay as
// they are. It tells how many are done.
func (c *client) createNodes(ctx context.Context, wanted []nodes.Node, tell func(done int)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	var mutex sync.Mutex
	queue, done := make(chan nodes.Node), 0
	for range creatingAtOnce {
		group.Go(func() {
			for node := range queue {
				if err := c.createNode(ctx, node); err != nil {
					cancel(fmt.Errorf("creating node %s: %w", node.Name, err))
				}
				mutex.Lock()
				done++
				tell(done)
				mutex.Unlock()
			}
		})
	}
	for _, node := range wanted {
		if ctx.Err() != nil {
			break
		}
		queue <- node
	}
	close(queue)
	group.Wait()
	return context.Cause(ctx)
}

func (c *client) createNode(ctx context.Context, node nodes.Node) error {
	_, err := request(ctx, c.http, http.MethodPost, c.url+"/api/v1/nodes", node.Body)
	if refused, is := err.(*answerError); is && refused.code == http.StatusConflict {
		return nil
	}
	return err
}

// waitForReady waits until kwok has made ready all nodes that it is to.
func (c *client) waitForReady(ctx context.Context, wanted []nodes.Node, tell func(done, total int)) error {
	for {
		waiting, total := map[string]bool{}, 0
		for _, node := range wanted {
			if node.Ready {
				waiting[node.Name] = true
				total++
			}
		}
		if err := c.dropReady(ctx, waiting); err != nil && ctx.Err() == nil {
			return fmt.Errorf("reading the nodes: %w", err)
		}
		tell(total-len(waiting), total)
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are not Ready yet", len(waiting), total)
		case <-time.After(lookAtNodesEvery):
		}
	}
}

func (c *client) dropReady(ctx context.Context, waiting map[string]bool) error {
	content, err := request(ctx, c.http, http.MethodGet, c.url+"/api/v1/nodes", nil)
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return err
	}
	for _, node := range list.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				delete(waiting, node.Metadata.Name)
			}
		}
	}
	return nil
}
