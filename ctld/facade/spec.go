package facade

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// spec.go makes the specification of what is served from the types of the answers, or from the tables that write them,
// so that it can't say anything else.

// openapi is the specification. It is the same for everybody, and made once.
func (q *request) openapi(string) (any, error) {
	q.f.once.Do(func() { q.f.spec, _ = json.Marshal(specification()) }) // of texts and numbers
	return told{raw: q.f.spec}, nil
}

func specification() map[string]any {
	m := &schemas{list: map[string]any{}}
	wrong := m.content(failure{}, "what is wrong", "")
	paths := map[string]map[string]any{}
	for _, t := range routes() {
		if paths[Prefix+t.path] == nil {
			paths[Prefix+t.path] = map[string]any{}
		}
		op := map[string]any{"summary": t.about, "operationId": operationID(&t), "responses": map[string]any{
			fmt.Sprint(t.status): m.content(t.answer, "done", t.gets), "default": wrong},
			"x-codeSamples": []any{map[string]any{"lang": "Shell", "source": t.curl()}}}
		var params []any
		if name := t.named(); name != "" {
			params = append(params, map[string]any{"name": name, "in": "path", "required": true, "example": t.name,
				"schema": map[string]any{"type": "string"}})
		}
		asks, _ := url.ParseQuery(t.asks) // this package's own
		for _, p := range t.query {
			param := map[string]any{"name": p[0], "in": "query", "description": p[1],
				"schema": map[string]any{"type": "string"}}
			if asks.Has(p[0]) {
				param["example"] = asks.Get(p[0])
			}
			params = append(params, param)
		}
		if len(params) > 0 {
			op["parameters"] = params
		}
		if t.body != nil {
			op["requestBody"] = m.content(t.body, "", t.sends)
		}
		if slices.Contains(Open(), Prefix+t.path) {
			op["security"] = []any{}
		}
		paths[Prefix+t.path][strings.ToLower(t.method)] = op
	}
	return map[string]any{"openapi": "3.0.3", "info": map[string]any{"title": "gbatch", "version": "v1"},
		"components": map[string]any{"schemas": m.list, "securitySchemes": map[string]any{"bearer": map[string]any{
			"type": "http", "scheme": "bearer"}}}, "security": []any{map[string]any{"bearer": []string{}}}, "paths": paths}
}

// named gives the name of what a path stands for; "": it has no such part.
func (t *route) named() string {
	_, rest, _ := strings.Cut(t.path, "{")
	name, _, _ := strings.Cut(rest, "}")
	return name
}

// curl is the example as a command: URL is a controller's address, and SLURM_JWT a token.
func (t *route) curl() string {
	path := Prefix + strings.Replace(t.path, "{"+t.named()+"}", t.name, 1)
	if t.asks != "" {
		path += "?" + t.asks
	}
	words := `curl -f -H "Authorization: Bearer $SLURM_JWT"`
	if _, stream := t.answer.(events); stream {
		words += " -N"
	}
	if t.method != http.MethodGet {
		words += " -X " + t.method
	}
	if t.sends != "" {
		words += " -H 'Content-Type: application/json' -d '" + t.sends + "'"
	}
	return words + ` "$URL` + path + `"`
}

// operationID names an operation for programs that make clients: get_tasks_id.
func operationID(t *route) string {
	return strings.ToLower(t.method) + strings.NewReplacer("/", "_", "{", "", "}", "", "-", "_", ".", "_").Replace(t.path)
}

// schemas are the types of answers, by name.
type schemas struct{ list map[string]any }

// content describes a body; example is one, "" none.
func (m *schemas) content(v any, about, example string) map[string]any {
	schema, kind := map[string]any{"type": "object"}, "application/json"
	if _, stream := v.(events); stream {
		schema, kind = map[string]any{"type": "string"}, "text/event-stream"
	} else if t, is := v.(told); is {
		schema = t.schema
	} else if v != nil {
		schema = m.of(reflect.TypeOf(v))
	}
	body := map[string]any{"schema": schema}
	if json.Valid([]byte(example)) {
		body["example"] = json.RawMessage(example)
	} else if example != "" {
		body["example"] = example
	}
	out := map[string]any{"content": map[string]any{kind: body}}
	if about != "" {
		out["description"] = about
	}
	return out
}

// of describes a type. A pointer to a number or text may be null; a field with omitempty may be missing. The words of
// a field's tag enum are the only ones.
func (m *schemas) of(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		s := m.of(t.Elem())
		if t.Elem().Kind() != reflect.Struct {
			s["nullable"] = true
		}
		return s
	case reflect.Struct:
		if _, known := m.list[t.Name()]; !known {
			m.list[t.Name()] = nil // it may have itself in it
			m.list[t.Name()] = m.object(t)
		}
		return map[string]any{"$ref": "#/components/schemas/" + t.Name()}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": m.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": m.of(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "integer"}
}

// object describes a structure.
func (m *schemas) object(t reflect.Type) map[string]any {
	props, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, how, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		s := m.of(f.Type)
		if words := f.Tag.Get("enum"); words != "" {
			s["enum"] = strings.Split(words, ",")
		}
		props[name] = s
		if how != "omitempty" {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": props, "required": required}
}
