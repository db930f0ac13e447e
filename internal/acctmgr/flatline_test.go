package acctmgr

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// The parser splits lines as the regular expression of their syntax does.
func TestFlatLine(t *testing.T) {
	want := regexp.MustCompile(`^(#?[A-Za-z]+)[ \t]*-[ \t]*('[^']*'|"[^"]*"|[^:]*)(?::(.*))?$`)
	r := rand.New(rand.NewPCG(1, 2))
	lines := []string{"", "-", "#", "# - x", "Cluster - 'c1':Fairshare=1:QOS='normal'", "User-anna:x",
		"#QOS - 'a:b':Priority=1", `Account - "a'b"`, "Account - 'a'b:c"}
	words := []string{"Account", "#QOS", "#", " ", "-", "'", "\"", ":", "x", "\t", "é", "1"}
	for range 20000 {
		var b strings.Builder
		for range r.IntN(9) {
			b.WriteString(words[r.IntN(len(words))])
		}
		lines = append(lines, b.String())
	}
	for _, line := range lines {
		kind, name, options, ok := flatLine(line)
		m := want.FindStringSubmatch(line)
		if ok != (m != nil) || m != nil && (m[1] != kind || m[2] != name || m[3] != options) {
			t.Fatalf("flatLine(%q) = %q, %q, %q, %v; want %q", line, kind, name, options, ok, m)
		}
	}
}
