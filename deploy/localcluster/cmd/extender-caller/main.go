// Command extender-caller asks extenders what kube-scheduler asks and says how
// long each answer took. bench/ measures with it: what it sees is what any
// client in Go sees, with net/http as it comes, connections that are kept, and
// no pause between two calls.
//
// Each line of its input names a server and how to ask it; for each it writes a
// line with the seconds of every call. Every Pod is another one, the nodes stand
// in another order in each call, and of a hundred nodes one has a newer
// heartbeat than in the call before, whichever server that one asked.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// endBytes is how much of an answer's end is looked at for an error.
const endBytes = 1 << 10

// beatingShare is how many of the nodes have a newer heartbeat in each call.
const beatingShare = 0.01

var (
	version   = regexp.MustCompile(`"resourceVersion":"[0-9]+"`)
	heartbeat = regexp.MustCompile(`"lastHeartbeatTime":"[^"]*"`)
	failure   = regexp.MustCompile(`"Error":"[^"]+"`)
	// special stands in the nodes that all rules refuse.
	special = []byte(`"pool":"special"`)
)

// block is a server, and how it is to be asked.
type block struct {
	URL   string `json:"url"`
	Form  string `json:"form"`
	Nodes int    `json:"nodes"`
	Rules string `json:"rules"`
	Pods  int    `json:"pods"`
}

// times are the seconds of a block's calls, by verb.
type times map[string][]float64

// caller holds the nodes as they are now, and the connections.
type caller struct {
	pod   []byte
	names [][]byte
	// refused are the nodes that /prioritize isn't asked about.
	refused []bool
	// nodes are the same ones in each spelling.
	nodes  map[string][][]byte
	pods   int
	beats  int
	body   bytes.Buffer
	answer bytes.Buffer
	client http.Client
}

func main() {
	folder := flag.String("folder", "", "where pod.json and the nodes are: a JSON list for each spelling, full.json first")
	flag.Parse()
	caller, err := newCaller(*folder)
	if err != nil {
		log.Fatal("extender-caller: ", err)
	}
	input, output := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked block
		if err := input.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal("extender-caller: ", err)
		}
		measured, err := caller.run(asked)
		if err != nil {
			log.Fatal("extender-caller: ", err)
		}
		if err := output.Encode(measured); err != nil {
			log.Fatal("extender-caller: ", err)
		}
	}
}

func newCaller(folder string) (*caller, error) {
	pod, err := os.ReadFile(filepath.Join(folder, "pod.json"))
	if err != nil {
		return nil, err
	}
	made := &caller{pod: pod, nodes: map[string][][]byte{}}
	for _, form := range []string{"full", "sorted", "reversed"} {
		text, err := os.ReadFile(filepath.Join(folder, form+".json"))
		if err != nil {
			return nil, err
		}
		var nodes []json.RawMessage
		if err := json.Unmarshal(text, &nodes); err != nil {
			return nil, err
		}
		for _, node := range nodes {
			made.nodes[form] = append(made.nodes[form], node)
		}
	}
	for _, node := range made.nodes["full"] {
		var named struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(node, &named); err != nil {
			return nil, err
		}
		made.names = append(made.names, []byte(`"`+named.Metadata.Name+`"`))
		made.refused = append(made.refused, bytes.Contains(node, special))
	}
	return made, nil
}

// run asks about one Pod after the other. The first isn't counted: it meets
// what other servers' blocks have changed.
func (c *caller) run(asked block) (times, error) {
	measured := times{}
	for pod := range asked.Pods + 1 {
		c.pods++
		for _, verb := range []string{"filter", "prioritize"} {
			seconds, err := c.call(asked, verb)
			if err != nil {
				return nil, err
			}
			if pod > 0 {
				measured[verb] = append(measured[verb], seconds)
			}
		}
	}
	return measured, nil
}

// call sends one call, and measures until the whole answer is there.
func (c *caller) call(asked block, verb string) (float64, error) {
	c.beat(asked.Nodes)
	c.write(asked, verb)
	started := time.Now()
	response, err := c.client.Post(asked.URL+"/"+verb, "application/json", bytes.NewReader(c.body.Bytes()))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	c.answer.Reset()
	if _, err := c.answer.ReadFrom(response.Body); err != nil {
		return 0, err
	}
	seconds := time.Since(started).Seconds()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: code %d: %.300s", verb, response.StatusCode, c.answer.Bytes())
	}
	end := c.answer.Bytes()[max(0, c.answer.Len()-endBytes):]
	if said := failure.Find(end); verb == "filter" && said != nil {
		return 0, fmt.Errorf("%s: %s", verb, said)
	}
	return seconds, nil
}

// beat gives some of the first nodes a newer heartbeat, in every spelling.
func (c *caller) beat(size int) {
	due := float64(size) * beatingShare
	count := int(due)
	if rand.Float64() < due-float64(count) {
		count++
	}
	for range count {
		number := rand.IntN(size)
		c.beats++
		newer := fmt.Appendf(nil, `"resourceVersion":"%d"`, 1_000_000_000+c.beats)
		at := time.Now().UTC().Format(`"lastHeartbeatTime":"2006-01-02T15:04:05Z"`)
		for _, nodes := range c.nodes {
			node := heartbeat.ReplaceAll(nodes[number], []byte(at))
			place := version.FindIndex(node)
			nodes[number] = bytes.Join([][]byte{node[:place[0]], newer, node[place[1]:]}, nil)
		}
	}
}

// write puts the body of a call together: kube-scheduler's members in Go's
// order, or in the order that a JSON of sorted members has.
func (c *caller) write(asked block, verb string) {
	pod := bytes.ReplaceAll(c.pod, []byte("POD-NAME"), fmt.Appendf(nil, "web-%08d", c.pods))
	pod = bytes.ReplaceAll(pod, []byte("POD-RULES"), []byte(asked.Rules))
	items := c.names
	if asked.Form != "names" {
		items = c.nodes[asked.Form]
	}
	order := rand.Perm(asked.Nodes)
	c.body.Reset()
	switch asked.Form {
	case "names":
		c.add([]byte(`{"Pod":`), pod, []byte(`,"Nodes":null,"NodeNames":[`))
	case "full":
		c.add([]byte(`{"Pod":`), pod, []byte(`,"Nodes":{"metadata":{},"items":[`))
	default:
		c.add([]byte(`{"NodeNames":null,"Nodes":{"items":[`))
	}
	begin := c.body.Len()
	for _, number := range order {
		if verb == "prioritize" && c.refused[number] {
			continue
		}
		if c.body.Len() > begin {
			c.body.WriteByte(',')
		}
		c.body.Write(items[number])
	}
	switch asked.Form {
	case "names":
		c.add([]byte(`]}`))
	case "full":
		c.add([]byte(`]},"NodeNames":null}`))
	default:
		c.add([]byte(`],"metadata":{}},"Pod":`), pod, []byte(`}`))
	}
}

func (c *caller) add(pieces ...[]byte) {
	for _, piece := range pieces {
		c.body.Write(piece)
	}
}
