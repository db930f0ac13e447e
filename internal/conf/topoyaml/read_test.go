package topoyaml

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	list, faults := Parse([]byte("---\n- topology: a\n  cluster_default: True\n  tree:\n    switches:\n    - " +
		"switch: s1\n" +
		"      nodes: n[1-2] # two\n    - switch: top\n      children: [s1, s2]\n- block: {block_sizes: 4, blocks: " +
		"[{block: b}]}\n" +
		"  topology: b\n- topology: c\n  flat: yes\n"))
	want := "[{a 2 true 2  0 [{s1 n[1-2]  6 7 0} {top  s1,s2 8 0 9}]} {b 10 false 3 4 10 [{b   10 0 0}]} {c 12 " +
		"false 1  0 []}]"
	if got := fmt.Sprint(list); got != want || faults != nil {
		t.Errorf("got %s, %v\nwant %s", got, faults, want)
	}
}

// TestFaults: each mistake is told of once, with its line and the way out.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "0 it has no topology; " + example,
		"# nothing\n":               "0 it has no topology; " + example,
		"[]":                        "1 it has no topology; " + example,
		"topology: a\nflat: true\n": "1 the file is not a list; " + example,
		"- a\n":                     "1 a topology is not a set of attributes; " + example,
		"- topology: a\n":           "1 topology a has no kind; write one of tree:, block: and flat: true",
		"- topology: a\n  flat: no\n": "2 topology a: flat: false says no kind; write flat: true, or tree: or block: " +
			"in its place",
		"- topology: a\n  flat: true\n  tree:\n    switches: []\n": "1 topology a has several kinds; write one of " +
			"tree:, block: " +
			"and flat: true",
		"- flat: true\n": `1 "" is not a topology's name; write - topology: NAME, of up to 64 ` +
			`letters, digits, - . and _`,
		"- topology: a:b\n  flat: true\n": `1 "a:b" is not a topology's name; write - topology: NAME, of up to 64 ` +
			`letters, digits, - . and _`,
		"- topology: a\n  flat: maybe\n": `2 flat: "maybe" is neither true nor false; write true or false`,
		"- topology: a\n  flat: true\n  cluster_defaut: true\n": `3 a topology has no attribute "cluster_defaut"; did ` +
			`you mean ` +
			`cluster_default?`,
		"- topology: a\n  flat: true\n  flat: true\n": `3 a topology has "flat" twice, first in line 2; remove one of them`,
		"- topology: a\n  ring:\n    x: 1\n": "3 topologies of the kind ring are not known here; write flat: true, or " +
			"describe " +
			"the network as tree: or block:",
		"- topology: a\n  tree: s1\n": "2 tree is not a set of attributes; write switches: and a list of " +
			"- switch: NAME",
		"- topology: a\n  tree: {}\n":              "2 tree has no switches; write switches: and a list of - switch: NAME",
		"- topology: a\n  block:\n    blocks: x\n": "3 blocks is not a list; write blocks: and a list of - block: NAME",
		"- topology: a\n  block:\n    blocks:\n    - nodes: n1\n": `4 "" is not a block's name; write - block: NAME, ` +
			`of up to 64 ` +
			`letters`,
		"- topology: a\n  block:\n    blocks:\n    - block: b\n      children: c\n": `5 a block has no attribute ` +
			`"children"; it has ` +
			`block, nodes`,
		"- topology: a\n  tree:\n    switches:\n    - {switch: s, nodes: n1, children: t}\n": "4 switch s has both " +
			"nodes and " +
			"children; write either nodes: or children:",
		"- topology: &x a\n  flat: true\n": `1 topology: anchors and aliases are not read here; write the values out|1 ` +
			`"" is not a ` +
			`topology's name; write - topology: NAME, of up to 64 letters, digits, - . and _`,
		"- topology: a\n  flat: true\n---\n- topology: b\n  flat: true\n": "3 there is a second document; remove the " +
			"line --- " +
			"and what follows it",
		"- topology: a\n\tflat: true\n": "2 it is not YAML: found a tab character that violates indentation; mend it, " +
			"and try again " +
			"with gbatch check",
	} {
		_, faults := Parse([]byte(text))
		var got []string
		for _, f := range faults {
			got = append(got, fmt.Sprintf("%d %s; %s", f.Line, f.Text, f.Hint))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q\n got %s\nwant %s", text, strings.Join(got, "|"), want)
		}
	}
}

// FuzzParse: no text makes it panic, and a fault is one short line.
func FuzzParse(f *testing.F) {
	f.Add("- topology: a\n  tree:\n    switches:\n    - switch: s1\n      nodes: n[1-2]\n")
	f.Add("- topology: a\n  block: {block_sizes: [1, 2], blocks: [{block: b, nodes: n1}]}\n- &x [*x]\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, faults := Parse([]byte(text))
		if len(faults) > MaxFaults+1 {
			t.Fatalf("%d faults", len(faults))
		}
		for _, x := range faults {
			if strings.Contains(x.Text, "\n") || len(x.Text) > 2000 {
				t.Fatalf("a fault of %d bytes: %q", len(x.Text), x.Text)
			}
		}
	})
}
