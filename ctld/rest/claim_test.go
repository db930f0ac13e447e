package rest

import (
	"net/http"
	"strings"
	"testing"
)

// TestClaim: what a request counts for, before it is read.
func TestClaim(t *testing.T) {
	const most = 1 << 20
	for _, x := range []struct {
		what, kind string
		length     int64
		want       int
	}{
		{"nothing", "", 0, 0},
		{"JSON", "application/json", 1000, 1000},
		{"more than it may", "application/json", most + 1, most},
		{"in chunks, of no length", "application/json", -1, most},
		{"YAML", "application/yaml; charset=utf-8", 1000, 1000 * yamlFactor},
		{"much YAML", "application/yaml", most, maxYAML * yamlFactor},
		{"YAML in chunks", "application/x-yaml", -1, maxYAML * yamlFactor},
	} {
		r := &http.Request{Header: http.Header{"Content-Type": {x.kind}}, ContentLength: x.length}
		if got := Claim(r, most); got != x.want {
			t.Errorf("%s counts as %d bytes, want %d", x.what, got, x.want)
		}
	}
}

// TestShortValues: a body of short values without end is refused before it is read; what clients send is not.
func TestShortValues(t *testing.T) {
	for _, unit := range []string{`{"a":0},`, `{},`, `[],`, `0,`, `"",`} {
		text := []byte(`{"jobs":[` + strings.Repeat(unit, 4<<20/len(unit)) + `0]}`)
		if err := tooMuch(text); err == nil || !strings.Contains(err.Error(), "short values") {
			t.Errorf("4 MiB of %s: %v", unit, err)
		}
	}
	script := `"` + strings.Repeat(`echo {a,b,c} [1,2]\n`, 200_000) + `"`
	env := `[` + strings.Repeat(`"SOME_VARIABLE=some value",`, 20_000) + `"A=1"]`
	jobs := strings.Repeat(`{"name":"a","time_limit":{"set":true,"infinite":false,"number":60},"tasks":4},`, 1000)
	for what, text := range map[string]string{"a script": `{"script":` + script + `}`, "an environment": env,
		"a het job of many": `{"jobs":[` + jobs + `{}]}`} {
		if err := tooMuch([]byte(text)); err != nil {
			t.Errorf("%s of %d bytes: %v", what, len(text), err)
		}
	}
}
