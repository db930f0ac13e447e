package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"gbatch/internal/golden"
)

// caps_test.go holds down what is too much today: testdata/caps.txt has a number for each, which may only shrink. What
// is not there may not be at all. `go test ./internal/archtest -run TestCaps -rewrite` takes over smaller numbers, and
// never a larger one: a file over its cap is split, a function shortened, a line broken, a file named in the doc.

// What is counted.
const (
	manyFiles    = 25  // Go files of a package, without tests and generated ones
	longFunction = 100 // lines of a function
	codeColumns  = 120
	proseColumns = 100 // of .md, doc.go and manual pages
)

// capped has numbers by "files DIR", "function DIR NAME" (its lines), "unnamed DIR" (files that its doc.go and
// DESIGN.md don't name), and of all packages together "columns code" and "columns prose" (lines that are too long).
type capped map[string]int

func TestCaps(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	now, where, err := count(root)
	if err != nil {
		t.Fatal(err)
	}
	const list = "testdata/caps.txt"
	caps, err := readCaps(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range sorted(now) {
		most, listed := caps[key]
		if now[key] > most {
			if listed {
				t.Errorf("%s is %d, and may be %d at most: %s", key, now[key], most, where[key])
			} else {
				t.Errorf("%s is %d, and may not be at all: %s", key, now[key], where[key])
			}
		}
	}
	var text bytes.Buffer
	for _, key := range sorted(caps) {
		n := min(caps[key], now[key])
		if n < caps[key] {
			t.Logf("%s may be %d, and is %d: take it over with -rewrite", key, caps[key], n)
		}
		if n > 0 {
			fmt.Fprintf(&text, "%s %d\n", key, n)
		}
	}
	if golden.Rewriting() {
		golden.Compare(t, list, text.Bytes())
	}
}

func sorted(c capped) []string {
	var keys []string
	for k := range c {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func readCaps(name string) (capped, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	caps := capped{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(line[i+1:])
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, line, err)
		}
		caps[line[:i]] = n
	}
	return caps, nil
}

// count gives the numbers of the tree as it is, and an example of each.
func count(root string) (now capped, where map[string]string, err error) {
	now, where = capped{}, map[string]string{}
	add := func(key, example string) {
		now[key]++
		where[key] = example
	}
	packages := map[string][]string{} // the files that a document should name
	docs := map[string]string{}       // what doc.go and DESIGN.md say
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (name == "testdata" || strings.HasPrefix(name, ".") || filepath.Dir(p) == root &&
				(name == "bin" || name == "dist")) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		dir := path.Dir(rel)
		prose := strings.HasSuffix(name, ".md") || dir == "man" || name == "doc.go"
		if !prose && !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(src, []byte("// Code generated")) {
			return nil
		}
		if name == "doc.go" || name == "DESIGN.md" {
			docs[dir] += string(src)
		}
		most, kind := codeColumns, "columns code"
		if prose {
			most, kind = proseColumns, "columns prose"
		}
		fixed := unbreakable(name, src)
		n := 0
		for line := range bytes.Lines(src) {
			if n++; utf8.RuneCount(bytes.TrimRight(line, "\n")) > most && !fixed[n] {
				add(kind, fmt.Sprintf("%s:%d has more than %d columns", rel, n, most))
			}
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			if name != "doc.go" {
				packages[dir] = append(packages[dir], name)
			}
			if i := bytes.Index(src, []byte("\npackage ")); i > 0 && bytes.HasPrefix(src, []byte("// Package ")) {
				docs[dir] += string(src[:i]) // a package without a doc.go
			}
			return functions(rel, src, now, where)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for dir, files := range packages {
		if len(files) > manyFiles {
			now["files "+dir], where["files "+dir] = len(files), "give what is a room of its own a folder"
		}
		if len(files) == 1 || dir == "." || strings.HasPrefix(dir, "cmd/") {
			continue // the folder's name says it
		}
		for _, f := range files {
			if f != path.Base(dir)+".go" && !names(docs[dir], f) {
				add("unnamed "+dir, f+" is named neither in doc.go nor in DESIGN.md")
			}
		}
	}
	return now, where, nil
}

// unbreakable gives the lines that can't be broken: of tables and code in prose, of macros and examples in manual
// pages, of raw strings and directives in code.
func unbreakable(name string, src []byte) map[int]bool {
	out := map[int]bool{}
	if strings.HasSuffix(name, ".go") {
		fset := token.NewFileSet()
		f := fset.AddFile(name, -1, len(src))
		var sc scanner.Scanner
		sc.Init(f, src, nil, scanner.ScanComments)
		for {
			pos, tok, lit := sc.Scan()
			if tok == token.EOF {
				return out
			}
			if tok == token.STRING && lit[0] == '`' || tok == token.COMMENT && strings.HasPrefix(lit, "//go:") {
				first := f.Line(pos)
				for i := range strings.Count(lit, "\n") + 1 {
					out[first+i] = true
				}
			}
		}
	}
	n, code := 0, false
	for line := range bytes.Lines(src) {
		n++
		switch {
		case bytes.HasPrefix(line, []byte("```")), bytes.HasPrefix(line, []byte(".nf")), bytes.HasPrefix(line, []byte(".fi")):
			code = !code
		case code, bytes.HasPrefix(line, []byte("|")), bytes.HasPrefix(line, []byte(".")):
			out[n] = true
		}
	}
	return out
}

// functions counts the lines of long ones.
func functions(rel string, src []byte, now capped, where map[string]string) error {
	fset := token.NewFileSet()
	a, err := parser.ParseFile(fset, rel, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range a.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
		if n <= longFunction {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil && len(fn.Recv.List) == 1 {
			t := fn.Recv.List[0].Type
			if star, ok := t.(*ast.StarExpr); ok {
				t = star.X
			}
			if id, ok := t.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		key := "function " + path.Dir(rel) + " " + name
		now[key], where[key] = n, rel+" says it in shorter ones"
	}
	return nil
}

// glob is a group of files in prose: steps*.go, or a list in braces: step{make,end}.go.
var glob = regexp.MustCompile(`[A-Za-z0-9_]*(?:\*|\{[a-z0-9_,]+\})[A-Za-z0-9_]*\.go\b`)

// names reports whether a text names a file, alone or in a group.
func names(text, file string) bool {
	base := strings.TrimSuffix(file, ".go")
	for i := 0; ; {
		k := strings.Index(text[i:], base+".go")
		if k < 0 {
			break
		}
		if i += k; i == 0 || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
			rune(text[i-1])) {
			return true
		}
		i++
	}
	for _, g := range glob.FindAllString(text, -1) {
		head, rest, braces := strings.Cut(g, "{")
		if !braces {
			if ok, err := path.Match(g, file); ok && err == nil {
				return true
			}
			continue
		}
		list, tail, _ := strings.Cut(rest, "}")
		for w := range strings.SplitSeq(list, ",") {
			if head+w+tail == file {
				return true
			}
		}
	}
	return false
}

// TestNames checks that groups of files are read as documents write them.
func TestNames(t *testing.T) {
	text := "Read loop.go, then steps*.go and gpu{env,share}.go; units.go too."
	for file, want := range map[string]bool{"loop.go": true, "stepsample.go": true, "steplist.go": false,
		"gpuenv.go": true, "gpushare.go": true,
		"gpu.go": false, "its.go": false, "units.go": true} {
		if names(text, file) != want {
			t.Errorf("%s: %v", file, !want)
		}
	}
}
