package archtest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// guards_test.go holds testdata/guards.txt: for each fault that once broke something, what guards against it, and the
// test that fails without it. Every run checks that the test is there and that the guard stands where the list says.
// With $GBATCH_GUARDS ("all", or rows: 1c,4f) each guard is taken out, and its test has to fail; `make guards` does it.
// Nothing is written to the tree: Go compiles another text in the file's place.

// guard is one entry of the list.
type guard struct {
	row, what string
	pkg, test string // a folder, and a test with its subtest, if the fault has one
	file      string
	old, new  []string // lines of the file, and what takes the guard out
}

func (g *guard) name() string { return g.row + " " + g.test }

// readGuards reads the list: paragraphs of "ROW what", "test PKG NAME", "file PATH", lines with - and with +.
func readGuards(text string) (all []*guard, err error) {
	for n, line := range strings.Split(text, "\n") {
		var g *guard
		if len(all) > 0 {
			g = all[len(all)-1]
		}
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "-"):
			g.old = append(g.old, line[1:])
		case strings.HasPrefix(line, "+"):
			g.new = append(g.new, line[1:])
		case word == "test":
			var cut bool
			if g.pkg, g.test, cut = strings.Cut(rest, " "); !cut {
				return nil, fmt.Errorf("line %d: want a folder and a test", n+1)
			}
		case word == "file":
			g.file = rest
		default:
			all = append(all, &guard{row: word, what: rest})
		}
	}
	return all, nil
}

// without gives a file's text without the guard.
func (g *guard) without(text string) (string, error) {
	old := strings.Join(g.old, "\n") + "\n"
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("%s: these lines stand %d times in %s, not once:\n%s", g.name(), n, g.file, old)
	}
	with := ""
	if len(g.new) > 0 {
		with = strings.Join(g.new, "\n") + "\n"
	}
	return strings.Replace(text, old, with, 1), nil
}

// has reports whether a folder has a test, or a session, of this name.
func has(root, pkg, test string) (bool, error) {
	top, sub, _ := strings.Cut(test, "/")
	if top == "TestScripts" {
		_, err := os.Stat(filepath.Join(root, pkg, "testdata", "script", sub+".txtar"))
		return err == nil, nil
	}
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == top {
				return true, nil
			}
		}
	}
	return false, nil
}

// rows are the rows of the faults that were measured and did not hold. Each has a guard.
var rows = strings.Fields("1c 1e 1f 1g 1h 2a 2g 3a 3b 3d 3e 4b 4e 4f 4g 4h 4i 4j 5 6b 6c 6d 6e 7a 7b 7e 7f 9a 9b")

// TestGuards: every guard stands, has its test, and without it the test fails.
func TestGuards(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/guards.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readGuards(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !slices.ContainsFunc(all, func(g *guard) bool { return g.row == row }) {
			t.Errorf("row %s has no guard in the list", row)
		}
	}
	picked := strings.Split(os.Getenv("GBATCH_GUARDS"), ",")
	for _, g := range all {
		t.Run(strings.ReplaceAll(g.name(), " ", "-"), func(t *testing.T) {
			if ok, err := has(root, g.pkg, g.test); err != nil || !ok {
				t.Errorf("there is no test %s in %s (%v)", g.test, g.pkg, err)
			}
			path := filepath.Join(root, g.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bare, err := g.without(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if picked[0] == "all" || slices.Contains(picked, g.row) {
				g.takeOut(t, root, path, bare)
			}
		})
	}
}

// takeOut runs the guard's test with the file's other text. It has to fail.
func (g *guard) takeOut(t *testing.T, root, path, bare string) {
	t.Helper()
	dir := t.TempDir()
	other, overlay := filepath.Join(dir, "without.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: other}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{other: []byte(bare), overlay: list} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	top, sub, _ := strings.Cut(g.test, "/")
	pattern := "^" + top + "$"
	if sub != "" {
		pattern += "/^" + sub + "$"
	}
	cmd := exec.Command("go", "test", "-count=1", "-timeout=4m", "-run", pattern, "./"+g.pkg)
	cmd.Dir = root
	// The tests build programs too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	out, err := cmd.CombinedOutput()
	switch said := string(out); {
	case err == nil:
		t.Errorf("%s passes without its guard:\n%s", g.test, said)
	case !strings.Contains(said, "--- FAIL: "+top) && !strings.Contains(said, "panic: "):
		t.Errorf("%s was not run without its guard: %v\n%s", g.test, err, said)
	default:
		t.Logf("without the guard:\n%s", said)
	}
}
