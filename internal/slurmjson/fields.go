package slurmjson

import (
	"strings"

	"gbatch/internal/model"
)

// This file owns objects as tables: a field of an object has a name, a type and where its value comes from, once for
// every version. What a version makes of a type, the Writer knows. A table is data and no code, which keeps a small
// binary small.

// Type is what kind of value a field has.
type Type uint8

const (
	Text    Type = iota // a string
	Integer             // a plain number in every version
	Boolean
	Number  // a number that can be missing or without a limit
	Count   // the same, of one that is always there
	Moment  // the same, of seconds since 1970; 0 for no time
	Words   // words: a list, up to v0.0.39 with commas between
	List    // a list of strings in every version
	Real    // a number with decimals that can be missing or infinite
	Numbers // a list of plain numbers
	Object
	Objects // a list of objects
	Special // what writes itself
	Exact   // a plain number with decimals, by its digits
)

// Field is a member of an object that shows a row of type T. Its value comes from one of the functions, which says its
// type. Without one it has the Type that is given, and gbatch has no such thing: it is an empty text or list, 0, false,
// or a number that is missing.
type Field[T any] struct {
	Name  string
	In    Shapes
	Since string            // the first version that has it; "": all of the shape's
	Until string            // the last one
	If    func(row *T) bool // whether the row has the field; nil: all have
	Type  Type              // where none of these is given:

	Str    func(row *T) string
	Int    func(row *T) int64
	Bool   func(row *T) bool
	Num    func(row *T) (v int64, set, infinite bool)
	Count  func(row *T) int64
	Time   func(row *T) model.Time
	Words  func(row *T) []string
	List   func(row *T) []string
	Real   func(row *T) (v float64, set bool)
	Ints   func(row *T) []int64
	Digits func(row *T) string // of an Exact number
	Fields []Field[T]          // an object about the same row
	Put    func(w *Writer, name string, row *T)

	Inner func() []string                 // with Put: what Describe says of its members
	Items func(ver string) map[string]any // with Put: the schema of its elements
}

func (f *Field[T]) typ() Type {
	switch {
	case f.Str != nil:
		return Text
	case f.Int != nil:
		return Integer
	case f.Bool != nil:
		return Boolean
	case f.Num != nil:
		return Number
	case f.Count != nil:
		return Count
	case f.Time != nil:
		return Moment
	case f.Words != nil:
		return Words
	case f.List != nil:
		return List
	case f.Real != nil:
		return Real
	case f.Ints != nil:
		return Numbers
	case f.Digits != nil:
		return Exact
	case f.Fields != nil:
		return Object
	case f.Put != nil && f.Type != Objects:
		return Special
	}
	return f.Type
}

// Shapes says which versions have a field.
type Shapes uint8

const (
	InAll Shapes = iota
	InOld        // up to v0.0.39
	InNew        // from v0.0.40 on
)

// Write writes an object: with name "" an element of a list.
func Write[T any](w *Writer, name string, fields []Field[T], row *T) {
	w.Open(name, '{')
	for i := range fields {
		f := &fields[i]
		if f.In != InAll && (f.In == InOld) != w.Old || !f.is(w.ver) || f.If != nil && !f.If(row) {
			continue
		}
		f.write(w, row)
	}
	w.Close('}')
}

// is reports whether a version has the field.
func (f *Field[T]) is(ver string) bool { return ver >= f.Since && (f.Until == "" || ver <= f.Until) }

func (f *Field[T]) write(w *Writer, row *T) {
	switch f.typ() {
	case Text:
		w.Str(f.Name, value(f.Str, row))
	case Integer:
		w.Num(f.Name, value(f.Int, row))
	case Boolean:
		w.Bool(f.Name, value(f.Bool, row))
	case Number:
		if f.Num == nil {
			w.Unset(f.Name)
			return
		}
		v, set, infinite := f.Num(row)
		w.Maybe(f.Name, v, set, infinite)
	case Count:
		w.Count(f.Name, value(f.Count, row))
	case Moment:
		w.Time(f.Name, value(f.Time, row))
	case Words:
		w.Words(f.Name, value(f.Words, row)...)
	case List:
		w.List(f.Name, value(f.List, row))
	case Real:
		if v, set := f.Real(row); set {
			w.Real(f.Name, v)
		} else {
			w.Unset(f.Name)
		}
	case Numbers:
		w.Open(f.Name, '[')
		for _, n := range value(f.Ints, row) {
			w.Num("", n)
		}
		w.Close(']')
	case Object:
		Write(w, f.Name, f.Fields, row)
	case Objects, Special:
		f.Put(w, f.Name, row)
	case Exact:
		w.Decimal(f.Name, value(f.Digits, row))
	}
}

// value is what get gives, or nothing.
func value[T, V any](get func(row *T) V, row *T) (v V) {
	if get != nil {
		v = get(row)
	}
	return v
}

// ListOf is a list of objects; each calls add for one after the other.
func ListOf[T, E any](name string, each func(row *T, add func(*E)), fields []Field[E]) Field[T] {
	return Field[T]{Name: name, Type: Objects, Put: func(w *Writer, name string, row *T) {
		w.Open(name, '[')
		each(row, func(x *E) { Write(w, "", fields, x) })
		w.Close(']')
	}, Inner: func() []string { return Describe(fields) },
		Items: func(ver string) map[string]any { return Schema(fields, ver) }}
}

// Slice is a list of objects, one for each element of a slice.
func Slice[T, E any](name string, get func(row *T) []E, fields []Field[E]) Field[T] {
	return ListOf(name, func(row *T, add func(*E)) {
		list := get(row)
		for i := range list {
			add(&list[i])
		}
	}, fields)
}

// Describe says what an object has in its versions, a line for each field.
func Describe[T any](fields []Field[T]) []string {
	var out []string
	for i := range fields {
		f := &fields[i]
		line := f.Name + " " + f.typ().String() + [...]string{"", ", up to v0.0.39", ", from v0.0.40"}[f.In]
		if f.Since != "" {
			line += ", from " + f.Since
		}
		if f.Until != "" {
			line += ", up to " + f.Until
		}
		if f.If != nil {
			line += ", not always"
		}
		out = append(out, line)
		inner := Describe(f.Fields)
		if f.Inner != nil {
			inner = f.Inner()
		}
		for _, l := range inner {
			out = append(out, "  "+l)
		}
	}
	return out
}

// Described is Describe as a text, below the object's name.
func Described[T any](name string, fields []Field[T]) string {
	return name + "\n  " + strings.Join(Describe(fields), "\n  ") + "\n"
}

func (t Type) String() string {
	return [...]string{"text", "integer", "boolean", "number", "number", "moment", "words", "list", "real",
		"integers", "object", "objects", "special", "decimal"}[t]
}

// Schema gives the OpenAPI schema of an object in a version from v0.0.40 on.
func Schema[T any](fields []Field[T], ver string) map[string]any {
	members := map[string]any{}
	for i := range fields {
		f := &fields[i]
		if f.In == InOld || !f.is(ver) {
			continue
		}
		members[f.Name] = f.schema(ver)
	}
	return map[string]any{"type": "object", "properties": members}
}

func (f *Field[T]) schema(ver string) map[string]any {
	list := func(of map[string]any) map[string]any { return map[string]any{"type": "array", "items": of} }
	kind := func(name string) map[string]any { return map[string]any{"type": name} }
	switch f.typ() {
	case Text:
		return kind("string")
	case Integer:
		return map[string]any{"type": "integer", "format": "int64"}
	case Boolean:
		return kind("boolean")
	case Number, Count, Moment:
		return NumberSchema("integer")
	case Real:
		return NumberSchema("number")
	case Words, List:
		return list(kind("string"))
	case Numbers:
		return list(kind("integer"))
	case Exact:
		return kind("number")
	case Object:
		return Schema(f.Fields, ver)
	case Objects:
		if f.Items != nil {
			return list(f.Items(ver))
		}
		return list(kind("object"))
	}
	return map[string]any{}
}

// NumberSchema is a number that can be missing or without a limit.
func NumberSchema(kind string) map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{"set": map[string]any{"type": "boolean"},
		"infinite": map[string]any{"type": "boolean"}, "number": map[string]any{"type": kind}}}
}
