package slurmjson

import (
	"strings"
	"testing"
)

func TestYAML(t *testing.T) {
	for _, k := range []struct{ json, want string }{
		{`{}`, "---\n{}\n"},
		{`[]`, "---\n[]\n"},
		{`{"a":1,"b":"x y","c":null,"d":{},"e":[]}`, "---\na: 1\nb: \"x y\"\nc: null\nd: {}\ne: []\n"},
		{`{"jobs":[{"id":7,"state":["RUNNING"],"num":{"set":true,"number":5}},{"id":8,"state":[]}],"errors":[]}`,
			"---\njobs:\n" +
				"- id: 7\n  state:\n  - RUNNING\n  num:\n    set: true\n    number: 5\n- id: 8\n  state: []\nerrors: []\n"},
		{`[[1,[2]],[{}],{"a":{"b":["c"]}}]`, "---\n- - 1\n  - - 2\n- - {}\n- a:\n    b:\n    - c\n"},
		// What would be another type, or break a line, stays quoted.
		{`["yes","No","1","~","","a: b","#x","-","\"q\\","tab\t","/dev/null","gpu:2","1.5","é"]`,
			"---\n- \"yes\"\n" +
				"- \"No\"\n- \"1\"\n- \"~\"\n- \"\"\n- \"a: b\"\n- \"#x\"\n- \"-\"\n- \"\\\"q\\\\\"\n- \"tab\\t\"\n" +
				"- /dev/null\n- \"gpu:2\"\n- \"1.5\"\n- \"é\"\n"},
		{" { \"a\" : [ 1 , true ] }\n", "---\na:\n- 1\n- true\n"},
	} {
		for _, size := range []int{1, 3, len(k.json)} { // however it is written
			var b strings.Builder
			w := YAML(&b)
			for rest := k.json; rest != ""; {
				n := min(size, len(rest))
				if _, err := w.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if b.String() != k.want {
				t.Errorf("%s by %d:\n%s\nwant\n%s", k.json, size, b.String(), k.want)
			}
		}
	}
}
