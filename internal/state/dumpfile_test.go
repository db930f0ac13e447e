package state

import (
	"bytes"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestDump: a written file is read again, byte for byte, and any other file is refused with a sentence.
func TestDump(t *testing.T) {
	s := New()
	s.Apply(Command{At: 5000, Body: &SetConfig{Config: &model.Config{Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}}, Instance: 3}})
	s.Apply(Command{At: 6000, Body: &Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"p"}}, Priority: 1}})
	var out bytes.Buffer
	if err := WriteDump(&out, 7000, s.Freeze()); err != nil {
		t.Fatal(err)
	}
	back, now, err := ReadDump(bytes.NewReader(out.Bytes()))
	if err != nil || now != 7000 || back.View().Job(1) == nil {
		t.Fatal(back, now, err)
	}
	var again bytes.Buffer
	if err := WriteDump(&again, now, back.Freeze()); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the dump of a dump differs", err)
	}
	for text, want := range map[string]string{
		"":                              "no dump",
		"1 0 -1 97225 56 -1 -1 56":      "no dump",
		"gbatch-state 2 7000\n":         "format 2",
		"gbatch-state 1 -7\n":           "damaged",
		"gbatch-state 1 7000\nnonsense": "snapshot",
	} {
		if _, _, err := ReadDump(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
