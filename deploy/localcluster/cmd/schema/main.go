// Schema prints the fields of Pod and Node as Kubernetes' own Go types have
// them, as a Python module: policies/engine/cel/kubernetes_schema.py. The rule
// engine checks the field paths that expressions read against it.
//
//	go run ./cmd/schema > ../../policies/engine/cel/kubernetes_schema.py
//
// With -docs it prints the same fields with the first sentence of Kubernetes'
// own documentation, as JSON: what the editor of rules completes.
//
//	go run ./cmd/schema -docs > ../../policies/static/berth/kubernetes-fields.json
package main

import (
	"encoding/json"
	"flag"
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

type walker struct {
	types map[string]map[string]string
	docs  map[string]map[string]string
}

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
	w.docs[t.Name()] = map[string]string{}
	w.fill(t, fields, w.docs[t.Name()])
}

// fill adds the JSON members of a struct, those of embedded ones included.
func (w *walker) fill(t reflect.Type, fields, docs map[string]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" && (field.Anonymous || strings.Contains(options, "inline")) {
			w.fill(field.Type, fields, docs)
			continue
		}
		fields[name] = w.name(field.Type)
		docs[name] = firstSentence(documented(t)[name])
	}
}

// documented gives what Kubernetes says of each field of a type.
func documented(t reflect.Type) map[string]string {
	said, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string })
	if !ok {
		return nil
	}
	return said.SwaggerDoc()
}

// longest is as much of a field's documentation as a popup shows.
const longest = 200

func firstSentence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if end := strings.Index(text, ". "); end >= 0 {
		text = text[:end+1]
	}
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest-1]) + "…"
	}
	return text
}

// printDocs prints {type: {field: [its type, its documentation]}}.
func (w *walker) printDocs() error {
	found := map[string]map[string][2]string{}
	for name, fields := range w.types {
		found[name] = map[string][2]string{}
		for field, kind := range fields {
			found[name][field] = [2]string{kind, w.docs[name][field]}
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	return out.Encode(found)
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
	docs := flag.Bool("docs", false, "print JSON with documentation")
	flag.Parse()
	w := &walker{types: map[string]map[string]string{}, docs: map[string]map[string]string{}}
	w.add(reflect.TypeOf(corev1.Pod{}))
	w.add(reflect.TypeOf(corev1.Node{}))
	if *docs {
		if err := w.printDocs(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
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
