package slurmjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestAppendString: any string becomes one that encoding/json reads back.
func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "a\"b\\c\n\t\r\x00\x1f\x7f", "näme", "\u2028", strings.Repeat("x", 100)} {
		var back string
		if err := json.Unmarshal(AppendString(nil, s), &back); err != nil || back != s {
			t.Errorf("%q: %q %v", s, back, err)
		}
	}
	if got := string(AppendString(nil, "a\xffb")); got != "\"a\ufffdb\"" {
		t.Errorf("bad UTF-8: %q", got)
	}
}

// TestFrame: the frame names its version, and in every version it is JSON.
func TestFrame(t *testing.T) {
	type row struct{ n int64 }
	fields := []Field[row]{{Name: "n", Num: func(r *row) (int64, bool, bool) { return r.n, r.n > 0, false }},
		{Name: "none", Type: List}}
	for _, ver := range Versions() {
		var b bytes.Buffer
		j := Begin(&b, "rows", ver)
		for i := range int64(2) {
			Write(j, "", fields, &row{i})
		}
		if err := j.Finish([]string{"squeue", "--json"}, "demo", 1_700_000_000_000); err != nil {
			t.Fatal(err)
		}
		want := `{"rows":[{"n":{"set":false,"infinite":false,"number":0},"none":[]},{"n":{"set":true,"infinite":false,` +
			`"number":1},"none":[]}],`
		if ver < "v0.0.40" {
			want = `{"rows":[{"n":0,"none":[]},{"n":1,"none":[]}],`
		}
		if !json.Valid(b.Bytes()) || !strings.HasPrefix(b.String(), want) ||
			!strings.Contains(b.String(), `"data_parser":"data_parser/`+ver+`"`) {
			t.Errorf("%s: %s", ver, b.Bytes())
		}
	}
}
