package state

import (
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestLongDescriptions: a command of before says how long a description may be, and a longer one changes nothing. Now
// the leader looks at that alone: Apply takes what is in the log.
func TestLongDescriptions(t *testing.T) {
	spec := func(n int) *model.Spec {
		return &model.Spec{Name: "x", UID: 7, Args: []string{strings.Repeat("a", n)}, Groups: make([]uint32, 1000)}
	}
	most := int32(bytesThen(spec(1000)))
	for rules, refused := range map[uint8]Refusal{rulesBrief: TooLong, rulesWeighed: OK} {
		s := New()
		submit := func(n int, most int32) Result {
			return s.Apply(Command{Kind: KindSubmit, At: 1000, Body: &Submit{Spec: spec(n), Most: most}, rules: rules})
		}
		ok, long, old := submit(1000, most), submit(1001, most), submit(100_000, 0)
		if ok.Refusal != OK || long.Refusal != refused || long.Changed != (refused == OK) || old.Refusal != OK {
			t.Fatalf("rules %d: %+v, %+v, %+v", rules, ok, long, old)
		}
		for n, want := range map[int]Refusal{1000: OK, 1001: refused} {
			res := s.Apply(Command{Kind: KindEdit, At: 2000, Body: &Edit{Targets: []model.JobRef{{Job: ok.Job,
				Task: model.NoTask}}, Set: []Field{SetSpec}, Spec: spec(n), Most: most}, rules: rules})
			if res.Each[0] != want {
				t.Errorf("rules %d, a change to %d bytes: %v", rules, n, res.Each)
			}
		}
	}
}

// TestOldLengths: what rules of before say of a description does not change with the fields that it has by now. Who
// appends one takes its byte out in bytesThen.
func TestOldLengths(t *testing.T) {
	sp := new(model.Spec)
	unfold(reflect.ValueOf(sp).Elem())
	if n := bytesThen(sp); n != 183 {
		t.Errorf("a description with one of everything has %d bytes", n)
	}
}

// unfold gives a value one of everything, all of it empty.
func unfold(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		unfold(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			unfold(v.Index(0))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				unfold(v.Field(i))
			}
		}
	}
}
