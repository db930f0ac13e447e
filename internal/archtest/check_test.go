package archtest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/golden"
)

func TestTree(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.files) == 0 {
		t.Fatal("no Go files found")
	}
	for _, p := range tr.check() {
		t.Error(p)
	}
	for _, f := range tr.files {
		if !f.generated && f.lines > longLines {
			t.Logf("%s has %d lines: does it have two subjects?", f.path, f.lines)
		}
	}
}

// TestWrongTree: every rule catches its fault. The golden file has one line for each.
func TestWrongTree(t *testing.T) {
	tr, err := readTree(filepath.Join("testdata", "wrong"))
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/wrong.txt", []byte(strings.Join(tr.check(), "\n")+"\n"))
}

// TestRulesHang: a rule with a path that no import matches is an error.
func TestRulesHang(t *testing.T) {
	for _, l := range layers {
		for _, m := range strings.Fields(l.mayImport) {
			if m != "internal" && place(m) == nil && !below(m, leaves...) {
				t.Errorf("%s may import %s, which has no place", l.subtree, m)
			}
		}
	}
	for _, p := range slices.Concat(pure, texts, light, exitIn, testOnly) {
		if place(p) == nil && !below(p, leaves...) {
			t.Errorf("a rule names %s, which has no place", p)
		}
	}
}

// check returns what is wrong in the tree, in the order of files and lines.
func (t *tree) check() []string {
	var out []string
	for _, name := range t.top {
		if !slices.Contains(top, name) {
			out = append(out, fmt.Sprintf(
				"%s: doesn't belong at the top of the repository; put it into one of the folders there", name))
		}
	}
	for _, f := range t.files {
		report := func(line int, format string, args ...any) {
			out = append(out, fmt.Sprintf("%s:%d: ", f.path, line)+fmt.Sprintf(format, args...))
		}
		if place(f.dir) == nil && !below(f.dir, leaves...) {
			report(1, "package %s has no place: add it to leaves or layers in internal/archtest/rules_test.go", f.dir)
		}
		for _, i := range f.imports {
			if dep, ok := t.inModule(i.what); ok {
				if !mayImport(f, dep) {
					report(i.line, "%s must not import %s", f.dir, dep)
				}
				continue
			}
			for _, c := range onlyIn {
				if below(i.what, c.dependency) && !below(f.dir, strings.Fields(c.in)...) {
					report(i.line, "%s is only for %s: %s", i.what, c.in, c.why)
				}
			}
			if !f.test && below(f.dir, pure...) && below(i.what, effects...) {
				report(i.line, "%s is pure and must not import %s", f.dir, i.what)
			}
			if !f.test && below(f.dir, texts...) && below(i.what, effects...) && !below(i.what, "time", "golang.org/x/sys") {
				report(i.line, "%s is pure but for moments as values, and must not import %s", f.dir, i.what)
			}
		}
		if !f.test && !below(f.dir, exitIn...) {
			for _, e := range f.exits {
				report(e.line, "%s outside %s: return an error", e.what, strings.Join(exitIn, ", "))
			}
		}
		if !f.generated {
			for _, i := range f.inits {
				report(i.line, "func init: say in New or Run what has to be done")
			}
			if f.lines > tooLongLines {
				report(f.lines, "more than %d lines: it has two subjects", tooLongLines)
			}
		}
	}
	for _, b := range light {
		not := heavy
		if b == "cmd/gcli" {
			not = slices.Concat(heavy, quick)
		}
		out = append(out, t.checkLight(b, not)...)
	}
	return out
}

// checkLight walks what a binary imports inside the module, and names the way to the first heavy import of each file.
func (t *tree) checkLight(binary string, heavy []string) []string {
	var out []string
	via := map[string]string{binary: binary}
	for queue := []string{binary}; len(queue) > 0; queue = queue[1:] {
		dir := queue[0]
		for _, f := range t.files {
			if f.dir != dir || f.test {
				continue
			}
			for _, i := range f.imports {
				if dep, ok := t.inModule(i.what); ok {
					if _, seen := via[dep]; !seen {
						via[dep] = via[dir] + " -> " + dep
						queue = append(queue, dep)
					}
				} else if below(i.what, heavy...) {
					out = append(out, fmt.Sprintf("%s:%d: %s is too heavy for %s (%s)", f.path, i.line, i.what, binary, via[dir]))
				}
			}
		}
	}
	return out
}

// inModule gives the directory of an import path of this module.
func (t *tree) inModule(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, t.module+"/")
}

// mayImport applies the layers to one arrow inside the module.
func mayImport(f file, dep string) bool {
	if f.test && below(dep, testsMayImport...) {
		return true
	}
	if below(dep, testOnly...) {
		return f.test
	}
	if below(dep, leaves...) {
		return true
	}
	l := place(f.dir)
	if l == nil {
		return false // a leaf, or a package without a place
	}
	return below(dep, l.subtree) && l.subtree != "cmd" || below(dep, strings.Fields(l.mayImport)...)
}

// place finds the layer of a directory: the longest subtree that holds it.
func place(dir string) *layer {
	var best *layer
	for i, l := range layers {
		if below(dir, l.subtree) && (best == nil || len(l.subtree) > len(best.subtree)) {
			best = &layers[i]
		}
	}
	return best
}

// below reports whether p is one of the given paths or lies under one.
func below(p string, paths ...string) bool {
	for _, q := range paths {
		if p == q || strings.HasPrefix(p, q+"/") {
			return true
		}
	}
	return false
}
