// Schema prints the fields of Pod and Node as Kubernetes' own Go types have
// them, as a Python module: policies/engine/cel/kubernetes_schema.py. The rule
// engine checks the field paths that expressions read against it.
//
//	go run ./cmd/schema > ../../policies/engine/kubernetes_schema.py
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// scalars are the types that stand in JSON as one value although they are
// structs in Go.
var scalars = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):        "string",
	reflect.TypeOf(metav1.MicroTime{}):   "string",
	reflect.TypeOf(metav1.Duration{}):    "string",
	reflect.TypeOf(resource.Quantity{}):  "string",
	reflect.TypeOf(intstr.IntOrString{}): "any",
	reflect.TypeOf(metav1.FieldsV1{}):    "any",
}

type walker struct{ types map[string]map[string]string }

// name gives how a type is written in the schema: a scalar, list:…, map:…, or
// the name of a type that has fields.
func (w *walker) name(t reflect.Type) string {
	if scalar, ok := scalars[t]; ok {
		return scalar
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.name(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "string"
		}
		return "list:" + w.name(t.Elem())
	case reflect.Map:
		return "map:" + w.name(t.Elem())
	case reflect.Struct:
		w.add(t)
		return t.Name()
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	default:
		return "int"
	}
}

func (w *walker) add(t reflect.Type) {
	if _, known := w.types[t.Name()]; known {
		return
	}
	fields := map[string]string{}
	w.types[t.Name()] = fields
	w.fill(t, fields)
}

// fill adds the JSON members of a struct, those of embedded ones included.
func (w *walker) fill(t reflect.Type, fields map[string]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" && (field.Anonymous || strings.Contains(options, "inline")) {
			w.fill(field.Type, fields)
			continue
		}
		fields[name] = w.name(field.Type)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func main() {
	w := &walker{types: map[string]map[string]string{}}
	w.add(reflect.TypeOf(corev1.Pod{}))
	w.add(reflect.TypeOf(corev1.Node{}))
	out := os.Stdout
	fmt.Fprintln(out, `"""The fields of Pod and Node in Kubernetes v1.36.3. Written by deploy/localcluster/cmd/schema; don't edit."""`)
	fmt.Fprintln(out)
	fmt.Fprintln(out, "TYPES: dict[str, dict[str, str]] = {")
	for _, name := range sortedKeys(w.types) {
		fields := w.types[name]
		if len(fields) == 0 {
			fmt.Fprintf(out, "    %q: {},\n", name)
			continue
		}
		fmt.Fprintf(out, "    %q: {\n", name)
		for _, field := range sortedKeys(fields) {
			fmt.Fprintf(out, "        %q: %q,\n", field, fields[field])
		}
		fmt.Fprintln(out, "    },")
	}
	fmt.Fprintln(out, "}")
}
