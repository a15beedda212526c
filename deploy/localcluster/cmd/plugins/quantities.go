package main

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantity is what Kubernetes takes a JSON value for. Value and MilliValue round
// up.
type quantity struct {
	OK    bool   `json:"ok"`
	Value int64  `json:"value"`
	Milli int64  `json:"milli"`
	Error string `json:"error,omitempty"`
}

func parseQuantity(line []byte) []byte {
	var parsed resource.Quantity
	if err := json.Unmarshal(line, &parsed); err != nil {
		return encode(quantity{Error: err.Error()})
	}
	return encode(quantity{OK: true, Value: parsed.Value(), Milli: parsed.MilliValue()})
}

func encode(answer any) []byte {
	encoded, err := json.Marshal(answer)
	if err != nil {
		return failure(err)
	}
	return encoded
}

// failure is the answer to a line that can't be understood.
func failure(err error) []byte {
	encoded, _ := json.Marshal(map[string]string{"error": err.Error()})
	return encoded
}
