package pools

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/migrate"
)

// TestRead: what becomes of documents of every kind, wrong ones among them, step by step, with the report and scripts.
func TestRead(t *testing.T) {
	data, err := os.ReadFile("testdata/sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r migrate.Report
	nodes := func(pool string) string { return map[string]string{"training-pool": "gpu[1-8]"}[pool] }
	w, err := Read("sample.yaml", data, nodes, &r)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range w.Steps {
		fmt.Fprintf(&b, "%d %s %s: once %q, always %q, %d GPUs\n", s.Line, s.What, s.Name, s.New, s.Set, s.GPUs)
	}
	b.WriteString("\n")
	for _, i := range r.Items {
		fmt.Fprintln(&b, i)
	}
	for _, j := range w.Jobs {
		fmt.Fprintf(&b, "\n== %s.sh\n%s", j.Name, j.Script)
	}
	golden.Compare(t, "testdata/sample.txt", []byte(b.String()))
	if !w.Guarantees || !w.Limits {
		t.Errorf("guarantees %v, limits %v, want both", w.Guarantees, w.Limits)
	}
}

// TestReadRefuses: what is no YAML, or too much of it, is an error; nothing panics.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a: [":                              "can't be read",
		strings.Repeat("#", MaxBytes+1):     "larger than",
		strings.Repeat("---\na: 1\n", 1001): "more than 1000 documents",
		"a: &a [1]\nb: [*a, *a]\nkind: 7":   "",
		"- 1\n---\n42\n---\n":               "",
	} {
		var r migrate.Report
		_, err := Read("f", []byte(text), func(string) string { return "" }, &r)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
		if want == "" && !r.Lost() {
			t.Errorf("%.30q: nothing is reported", text)
		}
	}
}

func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/sample.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r migrate.Report
		w, err := Read("f", data, func(string) string { return "" }, &r)
		if err != nil {
			return
		}
		for _, s := range w.Steps {
			if !goodName(s.Name) {
				t.Errorf("a step is named %q", s.Name)
			}
			for _, word := range append(s.New, s.Set...) {
				if strings.ContainsAny(word, "\n\"' ") {
					t.Errorf("%s %s has the word %q", s.What, s.Name, word)
				}
			}
		}
	})
}
