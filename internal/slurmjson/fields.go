package slurmjson

import "gbatch/internal/model"

// This file owns objects as tables: a field of an object has a name, a type and where its value comes from, once for every
// version. What a version makes of a type, the Writer knows.

// Type is what kind of value a field has.
type Type uint8

const (
	Text    Type = iota // a string
	Integer             // a plain number in every version
	Boolean
	Number // a number that can be missing or without a limit
	Moment // a Number of seconds since 1970; missing for no time
	Words  // words: a list, up to v0.0.39 with commas between
	List   // a list of strings in every version
	Object
	Objects // a list of objects
	Special // what writes itself
)

// Field is a member of an object that shows a row of type T.
type Field[T any] struct {
	Name string
	Type Type
	in   shapes
	put  func(w *Writer, name string, row *T)
	more func() []string // of objects: what Describe says of their members
}

// shapes says which versions have a field.
type shapes uint8

const (
	inAll shapes = iota
	inOld        // up to v0.0.39
	inNew        // from v0.0.40 on
)

// Old gives the field of the versions up to v0.0.39 alone, New that of the versions from v0.0.40 on.
func (f Field[T]) Old() Field[T] { f.in = inOld; return f }
func (f Field[T]) New() Field[T] { f.in = inNew; return f }

// If gives the field, which is there for some rows only.
func (f Field[T]) If(there func(row *T) bool) Field[T] {
	put := f.put
	f.put = func(w *Writer, name string, row *T) {
		if there(row) {
			put(w, name, row)
		}
	}
	return f
}

// Write writes an object: with name "" an element of a list.
func Write[T any](w *Writer, name string, fields []Field[T], row *T) {
	w.Open(name, '{')
	for i := range fields {
		if f := &fields[i]; f.in == inAll || (f.in == inOld) == w.Old {
			f.put(w, f.Name, row)
		}
	}
	w.Close('}')
}

// Describe says what an object has in its versions, a line for each field.
func Describe[T any](fields []Field[T]) []string {
	var out []string
	for _, f := range fields {
		line := f.Name + " " + f.Type.String()
		switch f.in {
		case inOld:
			line += ", up to v0.0.39"
		case inNew:
			line += ", from v0.0.40"
		}
		out = append(out, line)
		if f.more != nil {
			for _, l := range f.more() {
				out = append(out, "  "+l)
			}
		}
	}
	return out
}

func (t Type) String() string {
	return [...]string{"text", "integer", "boolean", "number", "moment", "words", "list", "object", "objects", "special"}[t]
}

// Of makes the fields of a row: Of[JobRow]{}.Str("name", ...).
type Of[T any] struct{}

func (Of[T]) Str(name string, get func(row *T) string) Field[T] {
	return Field[T]{Name: name, Type: Text, put: func(w *Writer, name string, row *T) { w.Str(name, get(row)) }}
}

func (Of[T]) Num(name string, get func(row *T) int64) Field[T] {
	return Field[T]{Name: name, Type: Integer, put: func(w *Writer, name string, row *T) { w.Num(name, get(row)) }}
}

func (Of[T]) Bool(name string, get func(row *T) bool) Field[T] {
	return Field[T]{Name: name, Type: Boolean, put: func(w *Writer, name string, row *T) { w.Bool(name, get(row)) }}
}

// Count is a number that is there.
func (Of[T]) Count(name string, get func(row *T) int64) Field[T] {
	return Field[T]{Name: name, Type: Number, put: func(w *Writer, name string, row *T) { w.Count(name, get(row)) }}
}

// Maybe is a number that can be missing.
func (Of[T]) Maybe(name string, get func(row *T) (v int64, set bool)) Field[T] {
	return Field[T]{Name: name, Type: Number, put: func(w *Writer, name string, row *T) {
		v, set := get(row)
		w.Maybe(name, v, set, false)
	}}
}

// Limit is a number that can be missing or without a limit.
func (Of[T]) Limit(name string, get func(row *T) (v int64, set, infinite bool)) Field[T] {
	return Field[T]{Name: name, Type: Number, put: func(w *Writer, name string, row *T) {
		v, set, infinite := get(row)
		w.Maybe(name, v, set, infinite)
	}}
}

func (Of[T]) Time(name string, get func(row *T) model.Time) Field[T] {
	return Field[T]{Name: name, Type: Moment, put: func(w *Writer, name string, row *T) { w.Time(name, get(row)) }}
}

func (Of[T]) Words(name string, get func(row *T) []string) Field[T] {
	return Field[T]{Name: name, Type: Words, put: func(w *Writer, name string, row *T) { w.Words(name, get(row)...) }}
}

func (Of[T]) List(name string, get func(row *T) []string) Field[T] {
	return Field[T]{Name: name, Type: List, put: func(w *Writer, name string, row *T) { w.List(name, get(row)) }}
}

// Object is an object within the object, about the same row.
func (Of[T]) Object(name string, fields ...Field[T]) Field[T] {
	return Field[T]{Name: name, Type: Object, put: func(w *Writer, name string, row *T) { Write(w, name, fields, row) },
		more: func() []string { return Describe(fields) }}
}

// ObjectsOf is a list of objects; each calls add for one after the other.
func ObjectsOf[T, E any](name string, each func(row *T, add func(*E)), fields ...Field[E]) Field[T] {
	return Field[T]{Name: name, Type: Objects, put: func(w *Writer, name string, row *T) {
		w.Open(name, '[')
		each(row, func(x *E) { Write(w, "", fields, x) })
		w.Close(']')
	}, more: func() []string { return Describe(fields) }}
}

// Special writes its name and value itself.
func (Of[T]) Special(name string, put func(w *Writer, name string, row *T)) Field[T] {
	return Field[T]{Name: name, Type: Special, put: put}
}

// What is the same for every row.

func (f Of[T]) StrIs(name, v string) Field[T] { return f.Str(name, func(*T) string { return v }) }

func (f Of[T]) NumIs(name string, v int64) Field[T] { return f.Num(name, func(*T) int64 { return v }) }

func (f Of[T]) BoolIs(name string, v bool) Field[T] { return f.Bool(name, func(*T) bool { return v }) }

func (f Of[T]) CountIs(name string, v int64) Field[T] {
	return f.Count(name, func(*T) int64 { return v })
}

// Missing is a number that gbatch does not have, NoTime a moment, NoList a list.
func (f Of[T]) Missing(name string) Field[T] {
	return f.Maybe(name, func(*T) (int64, bool) { return 0, false })
}

func (f Of[T]) NoTime(name string) Field[T] { return f.Time(name, func(*T) model.Time { return 0 }) }

func (f Of[T]) NoList(name string) Field[T] { return f.List(name, func(*T) []string { return nil }) }
