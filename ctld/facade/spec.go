package facade

import (
	"fmt"
	"reflect"
	"strings"
)

// spec.go makes the specification of what is served from the types of the answers, or from the tables that write them,
// so that it can't say anything else.

// openapi is the specification.
func (q *request) openapi(string) (any, error) {
	m := &schemas{list: map[string]any{}}
	wrong := m.content(failure{}, "what is wrong")
	paths := map[string]map[string]any{}
	for _, t := range routes() {
		if paths[Prefix+t.path] == nil {
			paths[Prefix+t.path] = map[string]any{}
		}
		op := map[string]any{"summary": t.about, "operationId": operationID(&t), "responses": map[string]any{
			fmt.Sprint(t.status): m.content(t.answer, "done"), "default": wrong}}
		var params []any
		if strings.Contains(t.path, "{id}") {
			params = append(params, map[string]any{"name": "id", "in": "path", "required": true,
				"schema": map[string]any{"type": "string"}})
		}
		for _, p := range t.query {
			params = append(params, map[string]any{"name": p[0], "in": "query", "description": p[1],
				"schema": map[string]any{"type": "string"}})
		}
		if len(params) > 0 {
			op["parameters"] = params
		}
		if t.body != nil {
			op["requestBody"] = m.content(t.body, "")
		}
		paths[Prefix+t.path][strings.ToLower(t.method)] = op
	}
	return map[string]any{"openapi": "3.0.3", "info": map[string]any{"title": "gbatch", "version": "v1"},
		"components": map[string]any{"schemas": m.list, "securitySchemes": map[string]any{"bearer": map[string]any{
			"type": "http", "scheme": "bearer"}}}, "security": []any{map[string]any{"bearer": []string{}}}, "paths": paths}, nil
}

// operationID names an operation for programs that make clients: get_tasks_id.
func operationID(t *route) string {
	return strings.ToLower(t.method) + strings.NewReplacer("/", "_", "{", "", "}", "", "-", "_", ".", "_").Replace(t.path)
}

// schemas are the types of answers, by name.
type schemas struct{ list map[string]any }

// content describes a body.
func (m *schemas) content(v any, about string) map[string]any {
	schema := map[string]any{"type": "object"}
	if t, is := v.(told); is {
		schema = t.schema
	} else if v != nil {
		schema = m.of(reflect.TypeOf(v))
	}
	out := map[string]any{"content": map[string]any{"application/json": map[string]any{"schema": schema}}}
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
