// Command extender-names is the least that a scheduler extender in Go can do
// when it is asked by names (nodeCacheCapable): it decodes the names alone,
// skips the Pod, and echoes them. bench/ measures Berth beside it.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"strconv"
)

// scores is how many different scores there are, 0 to 10.
const scores = 11

// arguments is ExtenderArgs without what isn't read.
type arguments struct {
	Pod       json.RawMessage
	NodeNames []string
}

type result struct {
	NodeNames []string
}

type priority struct {
	Host  string
	Score int64
}

func main() {
	port := flag.Int("port", 0, "the port to listen on, on 127.0.0.1")
	flag.Parse()
	http.HandleFunc("POST /filter", answer(filter))
	http.HandleFunc("POST /prioritize", answer(prioritize))
	http.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)), nil))
}

// answer decodes, calls and encodes. net/http keeps the connection.
func answer[Result any](verb func([]string) Result) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		var sent arguments
		if err := json.NewDecoder(request.Body).Decode(&sent); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		body, err := json.Marshal(verb(sent.NodeNames))
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
func filter(names []string) result { return result{names} }

// prioritize gives each host a score that is the same each time.
func prioritize(names []string) []priority {
	list := make([]priority, len(names))
	for index, name := range names {
		list[index] = priority{name, int64(len(name)) % scores}
	}
	return list
}
