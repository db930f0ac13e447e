package slurmjson

import (
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
