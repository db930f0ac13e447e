package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommittedFilesAreCurrent regenerates the samples: a changed generator must be committed with what it writes.
func TestCommittedFilesAreCurrent(t *testing.T) {
	for _, dir := range []string{"sample", "sample/other"} {
		got, err := generate(dir)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, outputName))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s/%s is not what codecgen writes now: run go generate ./internal/codecgen/...", dir, outputName)
		}
	}
}

// TestRefusals: what codecgen can't encode is an error with file, line and a way out, never a wrong codec.
func TestRefusals(t *testing.T) {
	const head = "package p\n//gbatch:codec\n"
	for name, c := range map[string]struct{ src, want string }{
		"embedded":           {head + "type T struct {\nE\n}\n//gbatch:codec\ntype E struct{}", "p/p.go:4: T: embedded field: give it a name"},
		"interface":          {head + "type T struct { A interface{} }", "T.A: an interface can't be encoded"},
		"any":                {head + "type T struct { A any }", "T.A: type any can't be encoded"},
		"channel":            {head + "type T struct { A chan int }", "T.A: a channel can't be encoded"},
		"function":           {head + "type T struct { A func() }", "T.A: a function can't be encoded"},
		"float32":            {head + "type T struct { A float32 }", "T.A: type float32 can't be encoded"},
		"int key":            {head + "type T struct { A map[int]string }", "map with key int can't be encoded"},
		"anonymous struct":   {head + "type T struct { A struct{ B int } }", "declare a type with //gbatch:codec"},
		"unmarked struct":    {head + "type T struct { A U }\ntype U struct{}", "struct U has no codec: put //gbatch:codec over it"},
		"unknown type":       {head + "type T struct { A Missing }", "T.A: type Missing can't be encoded"},
		"recursive pointer":  {head + "type T struct { A *T }", "type T contains itself"},
		"recursive slice":    {head + "type T struct { A []T }", "type T contains itself"},
		"mutual":             {head + "type T struct { A []U }\n//gbatch:codec\ntype U struct { B []T }", "contains itself"},
		"recursive named":    {head + "type T struct { A L }\ntype L []L", "type L contains itself"},
		"pointer to slice":   {head + "type T struct { A *[]int }", "pointer to []int can't be encoded"},
		"generic":            {head + "type T struct { A G[int] }\ntype G[X any] struct{}", "a generic type can't be encoded"},
		"foreign":            {"package p\nimport \"time\"\n//gbatch:codec\ntype T struct { A time.Duration }", "say what it is with codec:"},
		"unknown tag":        {head + "type T struct { A int `codec:\"json\"` }", `tag codec:"json"`},
		"not a struct":       {head + "type T []int", "T has //gbatch:codec but is not a plain struct"},
		"generic struct":     {head + "type T[X any] struct{}", "T has //gbatch:codec but is not a plain struct"},
		"misspelt directive": {"package p\n//gbatch:codecs\ntype T struct{}", "the directive is exactly"},
		"hand-written too":   {head + "type T struct{}\nfunc (t *T) EncodeMsgpack() {}", "a hand-written codec; keep one"},
		"nothing marked":     {"package p\ntype T struct{}", "has no struct with //gbatch:codec"},
		"no such dependency": {"package p\nimport \"x/q\"\n//gbatch:codec\ntype T struct { A q.Q }", "reading package x/q"},
		"no such import":     {head + "type T struct { A q.Q }", "no import named q"},
		"syntax":             {"package p\ntype", "expected"},
		"two at once":        {head + "type T struct {\nA chan int\nB func()\n}", "p/p.go:5: T.B: a function"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeModule(t, map[string]string{"p/p.go": c.src})
			_, err := generate(filepath.Join(dir, "p"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestFindsTypesAcrossPackages(t *testing.T) {
	dir := writeModule(t, map[string]string{
		"p/p.go": "package p\nimport m \"x/model\"\n//gbatch:codec\ntype T struct { A m.ID; B []m.Job; C m.Bits }",
		// Found though model's own codec_gen.go isn't written yet, and though its directory isn't its package's name.
		"model/model.go":  "package nouns\nimport \"x/deep\"\ntype ID = deep.ID\ntype Bits []deep.ID\n//gbatch:codec\ntype Job struct{}",
		"model/other.go":  "//go:build ignore\n\npackage main",
		"deep/deep.go":    "package deep\ntype ID uint16",
		"p/codec_gen.go":  "this file is not read",
		"p/extra_test.go": "package p_test",
	})
	if err := run(filepath.Join(dir, "p")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "p", outputName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"x.A = deep.ID(v)", `"x/deep"`, `nouns "x/model"`, "[]nouns.Job", "make(nouns.Bits, 0"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("generated file has no %s:\n%s", want, b)
		}
	}
}

// writeModule lays out files in a new module called x.
func writeModule(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module x\n"
	for name, src := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
