package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// directive marks a struct that gets a codec.
const directive = "//gbatch:codec"

// module is the tree whose packages can be looked into.
type module struct {
	root, path string
	fset       *token.FileSet
	pkgs       map[string]*pkg // by import path
}

// pkg is one parsed package: what codecgen needs of it, without type checking.
type pkg struct {
	name, path string
	types      map[string]*typeDecl
	order      []*typeDecl     // those with the directive, in the order of files and lines
	encodes    map[string]bool // types with a hand-written EncodeMsgpack
	decodes    map[string]bool
}

type typeDecl struct {
	pkg   *pkg
	file  *ast.File
	spec  *ast.TypeSpec
	codec bool
}

// findModule finds the go.mod above dir.
func findModule(dir string) (*module, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for at := abs; ; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil {
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "module" {
					return &module{root: at, path: f[1], fset: token.NewFileSet(), pkgs: map[string]*pkg{}}, nil
				}
			}
			return nil, fmt.Errorf("%s has no module line", filepath.Join(at, "go.mod"))
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf("no go.mod above %s", abs)
		}
	}
}

// importPath names the package in dir.
func (m *module) importPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(m.root, abs)
	if err != nil {
		return "", err
	}
	return path.Join(m.path, filepath.ToSlash(rel)), nil
}

// load parses a package of the module, once. It returns nil without error for a path outside the module.
func (m *module) load(importPath string) (*pkg, error) {
	if p, ok := m.pkgs[importPath]; ok {
		return p, nil
	}
	if importPath != m.path && !strings.HasPrefix(importPath, m.path+"/") {
		return nil, nil
	}
	dir := filepath.Join(m.root, filepath.FromSlash(strings.TrimPrefix(importPath, m.path)))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading package %s: %w", importPath, err)
	}
	p := &pkg{path: importPath, types: map[string]*typeDecl{}, encodes: map[string]bool{}, decodes: map[string]bool{}}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || name == outputName {
			continue
		}
		if ok, err := build.Default.MatchFile(dir, name); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		f, err := parser.ParseFile(m.fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if p.name != "" && p.name != f.Name.Name {
			return nil, fmt.Errorf("%s holds packages %s and %s", dir, p.name, f.Name.Name)
		}
		p.name = f.Name.Name
		if err := m.collect(p, f); err != nil {
			return nil, err
		}
	}
	if p.name == "" {
		return nil, fmt.Errorf("no Go files in %s", dir)
	}
	m.pkgs[importPath] = p
	return p, nil
}

// collect takes the types and the hand-written codec methods of one file.
func (m *module) collect(p *pkg, f *ast.File) error {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || len(d.Recv.List) != 1 {
				continue
			}
			t := d.Recv.List[0].Type
			if s, ok := t.(*ast.StarExpr); ok {
				t = s.X
			}
			if id, ok := t.(*ast.Ident); ok {
				switch d.Name.Name {
				case "EncodeMsgpack":
					p.encodes[id.Name] = true
				case "DecodeMsgpack":
					p.decodes[id.Name] = true
				}
			}
		case *ast.GenDecl:
			if d.Tok != token.TYPE {
				continue
			}
			for _, s := range d.Specs {
				spec := s.(*ast.TypeSpec)
				doc := spec.Doc
				if doc == nil && len(d.Specs) == 1 {
					doc = d.Doc
				}
				marked, err := m.marked(doc)
				if err != nil {
					return err
				}
				t := &typeDecl{pkg: p, file: f, spec: spec, codec: marked}
				p.types[spec.Name.Name] = t
				if !marked {
					continue
				}
				if _, ok := spec.Type.(*ast.StructType); !ok || spec.TypeParams != nil || spec.Assign.IsValid() {
					return m.errorf(spec.Pos(), "%s has %s but is not a plain struct type", spec.Name.Name, directive)
				}
				p.order = append(p.order, t)
			}
		}
	}
	return nil
}

// marked looks for the directive in a doc comment.
func (m *module) marked(doc *ast.CommentGroup) (bool, error) {
	if doc == nil {
		return false, nil
	}
	for _, c := range doc.List {
		if !strings.HasPrefix(c.Text, directive) {
			continue
		}
		if c.Text != directive {
			return false, m.errorf(c.Pos(), "%q: the directive is exactly %q", c.Text, directive)
		}
		return true, nil
	}
	return false, nil
}

// importOf finds the import path that a file calls name.
func (m *module) importOf(f *ast.File, name string) (string, error) {
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return "", err
		}
		if i.Name != nil {
			if i.Name.Name == name {
				return p, nil
			}
			continue
		}
		if path.Base(p) == name {
			return p, nil
		}
		if dep, err := m.load(p); err == nil && dep != nil && dep.name == name {
			return p, nil
		}
	}
	return "", fmt.Errorf("no import named %s", name)
}

func (m *module) errorf(pos token.Pos, format string, args ...any) error {
	at := m.fset.Position(pos)
	if rel, err := filepath.Rel(m.root, at.Filename); err == nil {
		at.Filename = rel
	}
	return fmt.Errorf("%s:%d: %s", at.Filename, at.Line, fmt.Sprintf(format, args...))
}
