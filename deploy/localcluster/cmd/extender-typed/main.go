// Command extender-typed is a scheduler extender as they are written in Go: it
// decodes kube-scheduler's body into the types of k8s.io/kube-scheduler and
// k8s.io/api with encoding/json, decides nothing, and answers with what it
// decoded. bench/ measures Berth beside it.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"strconv"

	extender "k8s.io/kube-scheduler/extender/v1"
)

// scores is how many different scores there are, 0 to 10.
const scores = extender.MaxExtenderPriority + 1

func main() {
	port := flag.Int("port", 0, "the port to listen on, on 127.0.0.1")
	flag.Parse()
	http.HandleFunc("POST /filter", answer(filter))
	http.HandleFunc("POST /prioritize", answer(prioritize))
	http.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)), nil))
}

// answer decodes, calls and encodes. net/http keeps the connection.
func answer[Result any](verb func(extender.ExtenderArgs) Result) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		var arguments extender.ExtenderArgs
		if err := json.NewDecoder(request.Body).Decode(&arguments); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		body, err := json.Marshal(verb(arguments))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
		writer.Write(body)
	}
}

// filter lets all pass.
func filter(arguments extender.ExtenderArgs) extender.ExtenderFilterResult {
	return extender.ExtenderFilterResult{Nodes: arguments.Nodes, NodeNames: arguments.NodeNames}
}

// prioritize gives each host a score that is the same each time.
func prioritize(arguments extender.ExtenderArgs) extender.HostPriorityList {
	list := extender.HostPriorityList{}
	add := func(host string) {
		list = append(list, extender.HostPriority{Host: host, Score: int64(len(host)) % scores})
	}
	if arguments.Nodes != nil {
		for index := range arguments.Nodes.Items {
			add(arguments.Nodes.Items[index].Name)
		}
	} else if arguments.NodeNames != nil {
		for _, name := range *arguments.NodeNames {
			add(name)
		}
	}
	return list
}
