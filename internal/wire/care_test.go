package wire_test

import (
	"errors"
	"strings"
	"testing"

	"gbatch/internal/plain"
	"gbatch/internal/wire"
)

// texts has a string of each sort.
type texts struct {
	Text, Derived, Lines, Data, ID string
	Set                            []setting
}

func (x *texts) Wire(c *wire.C) {
	wire.Text(c, &x.Text, 100)
	wire.Derived(c, &x.Derived, 100)
	wire.Lines(c, &x.Lines, 100)
	wire.Data(c, &x.Data, 100)
	wire.ID(c, &x.ID, 100)
	wire.List(c, &x.Set, 100)
}

type setting struct{ Key, Value string }

func (x *setting) Wire(c *wire.C) {
	wire.Text(c, &x.Key, 100)
	wire.Text(c, &x.Value, 100)
	c.Blame(x.Key)
}

// TestCare is the table of Care.
func TestCare(t *testing.T) {
	const bad, line, more = "a\x1b[2J\nb\xff", "a?[2J?b?", "a?[2J\nb?"
	all := texts{Text: bad, Derived: bad, Lines: bad, Data: bad, ID: bad}
	for care, want := range map[wire.Care]texts{
		wire.AsIs: all,
		wire.Keep: {Text: line, Derived: line, Lines: more, Data: bad, ID: bad},
		wire.Show: {Text: line, Derived: line, Lines: more, Data: line, ID: bad},
	} {
		body, err := wire.AppendMessage(nil, &all)
		if err != nil {
			t.Fatal(err)
		}
		var got texts
		if err := wire.ReadMessageWith(body, &got, care); err != nil {
			t.Error(err)
		}
		if got.Text != want.Text || got.Derived != want.Derived || got.Lines != want.Lines || got.Data != want.Data ||
			got.ID != want.ID {
			t.Errorf("care %d: %q, want %q", care, got, want)
		}
	}
	for name, c := range map[string]struct {
		is         texts
		field, key string
	}{
		"plain":   {is: texts{Text: "Übung 7", Lines: "a\n\tb", Derived: bad, Data: bad, ID: bad}},
		"a line":  {is: texts{Text: bad}, field: "Text"},
		"lines":   {is: texts{Lines: "a\x1b"}, field: "Lines"},
		"a value": {is: texts{Set: []setting{{"a", "b"}, {"Comment", "x\x7f"}}}, field: "Set[1].Value", key: "Comment"},
		"a key":   {is: texts{Set: []setting{{"a\x1b", "b"}}}, field: "Set[0].Key"},
	} {
		body, err := wire.AppendMessage(nil, &c.is)
		if err != nil {
			t.Fatal(err)
		}
		var got texts
		err = wire.ReadMessageWith(body, &got, wire.Refuse)
		var no *wire.NotPlain
		var why *plain.Error
		switch {
		case c.field == "" && (err != nil || strings.ContainsAny(got.Derived, "\x1b\n") || got.Data != bad):
			t.Errorf("%s: %v, %q", name, err, got)
		case c.field != "" && (!errors.As(err, &no) || !errors.As(err, &why) || no.Field != c.field || no.Key != c.key):
			t.Errorf("%s: %v, %+v", name, err, no)
		}
	}
}
