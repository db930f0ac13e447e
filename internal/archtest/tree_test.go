package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

type layer struct{ subtree, mayImport string }

type confined struct{ dependency, in, why string }

// tree is a module's Go files, as far as the rules look at them.
type tree struct {
	module string
	top    []string // what lies in the root
	files  []file
}

type file struct {
	path, dir string // relative to the root, with slashes
	test      bool
	generated bool
	lines     int
	imports   []at // import paths
	exits     []at // os.Exit and the like
	inits     []at
}

type at struct {
	what string
	line int
}

// moduleRoot finds the go.mod above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
	}
}

func readTree(root string) (*tree, error) {
	t := &tree{}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mod)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "module" {
			t.module = f[1]
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		t.top = append(t.top, e.Name())
	}
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
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f, err := readFile(p, filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		t.files = append(t.files, f)
		return nil
	})
	return t, err
}

func readFile(name, rel string) (file, error) {
	f := file{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go")}
	fset := token.NewFileSet()
	src, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	a, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	line := func(n ast.Node) int { return fset.Position(n.Pos()).Line }
	f.generated = ast.IsGenerated(a)
	f.lines = strings.Count(string(src), "\n")
	called := map[string]string{} // the file's name of a package -> its path
	for _, i := range a.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return f, err
		}
		f.imports = append(f.imports, at{p, line(i)})
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		called[name] = p
	}
	for _, d := range a.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			f.inits = append(f.inits, at{"init", line(fn)})
		}
	}
	ast.Inspect(a, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if !ok {
			return true
		}
		for _, fn := range exits[called[x.Name]] {
			if s.Sel.Name == fn {
				f.exits = append(f.exits, at{called[x.Name] + "." + fn, line(s)})
			}
		}
		return true
	})
	return f, nil
}
