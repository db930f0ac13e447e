package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"reflect"
	"strconv"
	"strings"
)

// kind is how a value is written.
type kind int

const (
	kBool kind = iota
	kInt
	kUint
	kFloat
	kString
	kBytes     // []byte
	kByteArray // [N]byte
	kSlice
	kArray
	kMap
	kPtr
	kCodec   // has EncodeMsgpack and DecodeMsgpack
	kRetired // a field named _: a slot without a value
)

// typ is a resolved type. src is how the generated file names it.
type typ struct {
	kind kind
	src  string
	wide bool // int64, uint64: every value fits
	elem *typ
	key  *typ
}

// field is one slot of a struct.
type field struct {
	name string
	typ  *typ
}

// structCodec is one struct to write a codec for.
type structCodec struct {
	name   string
	fields []field
}

// resolver turns the AST of one package's marked structs into typ trees.
type resolver struct {
	m       *module
	home    *pkg
	imports map[string]string // package name -> import path, what the generated file needs
	open    map[*typeDecl]bool
}

var basics = map[string]typ{
	"bool": {kind: kBool}, "string": {kind: kString}, "float64": {kind: kFloat},
	"int": {kind: kInt}, "int8": {kind: kInt}, "int16": {kind: kInt}, "int32": {kind: kInt}, "rune": {kind: kInt}, "int64": {kind: kInt, wide: true},
	"uint": {kind: kUint}, "uint8": {kind: kUint}, "byte": {kind: kUint}, "uint16": {kind: kUint}, "uint32": {kind: kUint}, "uint64": {kind: kUint, wide: true},
}

// structs resolves all marked structs and reports every problem, not only the first.
func (r *resolver) structs() ([]structCodec, error) {
	var out []structCodec
	var errs []error
	for _, t := range r.home.order {
		if r.home.encodes[t.spec.Name.Name] || r.home.decodes[t.spec.Name.Name] {
			errs = append(errs, r.m.errorf(t.spec.Pos(), "%s has %s and a hand-written codec; keep one", t.spec.Name.Name, directive))
			continue
		}
		fields, err := r.fields(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, structCodec{name: t.spec.Name.Name, fields: fields})
	}
	return out, errors.Join(errs...)
}

func (r *resolver) fields(t *typeDecl) ([]field, error) {
	r.open[t] = true
	defer delete(r.open, t)
	var out []field
	var errs []error
	for _, f := range t.spec.Type.(*ast.StructType).Fields.List {
		tag, err := codecTag(f)
		if err != nil {
			errs = append(errs, r.m.errorf(f.Pos(), "%s: %v", t.spec.Name.Name, err))
			continue
		}
		if tag == "-" {
			continue
		}
		if len(f.Names) == 0 {
			errs = append(errs, r.m.errorf(f.Pos(), `%s: embedded field: give it a name (its fields would otherwise move when it grows), or tag it codec:"-"`, t.spec.Name.Name))
			continue
		}
		for _, n := range f.Names {
			if n.Name == "_" {
				out = append(out, field{name: "_", typ: &typ{kind: kRetired}})
				continue
			}
			ft, err := r.resolve(t.file, t.pkg, f.Type, tag)
			if err != nil {
				errs = append(errs, r.m.errorf(n.Pos(), "%s.%s: %v", t.spec.Name.Name, n.Name, err))
				continue
			}
			out = append(out, field{name: n.Name, typ: ft})
		}
	}
	return out, errors.Join(errs...)
}

func codecTag(f *ast.Field) (string, error) {
	if f.Tag == nil {
		return "", nil
	}
	s, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return "", err
	}
	switch v := reflect.StructTag(s).Get("codec"); v {
	case "", "-", "int", "uint", "string":
		return v, nil
	default:
		return "", fmt.Errorf(`tag codec:%q: use "-", "int", "uint" or "string"`, v)
	}
}

// resolve gives the typ of expr, which stands in file of package p.
func (r *resolver) resolve(file *ast.File, p *pkg, expr ast.Expr, tag string) (*typ, error) {
	switch e := expr.(type) {
	case *ast.ParenExpr:
		return r.resolve(file, p, e.X, tag)
	case *ast.Ident:
		if d, ok := p.types[e.Name]; ok {
			return r.named(d, tag)
		}
		if b, ok := basics[e.Name]; ok {
			b.src = e.Name
			return &b, nil
		}
		return nil, fmt.Errorf("type %s can't be encoded (only types declared in package %s, or bool, integers, float64, string)", e.Name, p.name)
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		if !ok {
			return nil, errors.New("unknown form of type")
		}
		return r.external(file, x.Name, e.Sel.Name, tag)
	case *ast.StarExpr:
		el, err := r.resolve(file, p, e.X, tag)
		if err != nil {
			return nil, err
		}
		switch el.kind {
		case kBool, kInt, kUint, kFloat, kString, kCodec:
			return &typ{kind: kPtr, src: "*" + el.src, elem: el}, nil
		}
		return nil, fmt.Errorf("pointer to %s can't be encoded (only pointers to scalars and codec structs)", el.src)
	case *ast.ArrayType:
		return r.list(file, p, e, tag)
	case *ast.MapType:
		k, err := r.resolve(file, p, e.Key, "")
		if err != nil {
			return nil, err
		}
		if k.kind != kString {
			return nil, fmt.Errorf("map with key %s can't be encoded (only string keys)", k.src)
		}
		el, err := r.resolve(file, p, e.Value, tag)
		if err != nil {
			return nil, err
		}
		return &typ{kind: kMap, src: "map[" + k.src + "]" + el.src, key: k, elem: el}, nil
	case *ast.StructType:
		return nil, errors.New("a struct without a name can't be encoded: declare a type with " + directive)
	}
	return nil, fmt.Errorf("%s can't be encoded", kindName(expr))
}

func (r *resolver) list(file *ast.File, p *pkg, e *ast.ArrayType, tag string) (*typ, error) {
	el, err := r.resolve(file, p, e.Elt, tag)
	if err != nil {
		return nil, err
	}
	isByte := el.src == "byte" || el.src == "uint8"
	if e.Len == nil {
		if isByte {
			return &typ{kind: kBytes, src: "[]byte"}, nil
		}
		return &typ{kind: kSlice, src: "[]" + el.src, elem: el}, nil
	}
	n := ""
	switch l := e.Len.(type) {
	case *ast.BasicLit:
		n = l.Value
	case *ast.Ident:
		n = r.qualify(p, l.Name)
	default:
		return nil, errors.New("an array's length must be a number or the name of a constant")
	}
	if isByte {
		return &typ{kind: kByteArray, src: "[" + n + "]byte"}, nil
	}
	return &typ{kind: kArray, src: "[" + n + "]" + el.src, elem: el}, nil
}

// named resolves a type declared in the module.
func (r *resolver) named(d *typeDecl, tag string) (*typ, error) {
	name := d.spec.Name.Name
	if d.spec.TypeParams != nil {
		return nil, fmt.Errorf("generic type %s can't be encoded", name)
	}
	if r.open[d] {
		return nil, fmt.Errorf("type %s contains itself", name)
	}
	if d.pkg != r.home && !token.IsExported(name) {
		return nil, fmt.Errorf("type %s.%s is not exported", d.pkg.name, name)
	}
	if err := r.need(d.pkg); err != nil {
		return nil, err
	}
	src := r.qualify(d.pkg, name)
	if d.spec.Assign.IsValid() {
		return r.resolve(d.file, d.pkg, d.spec.Type, tag)
	}
	if d.codec {
		// Walk into it only to find a type that contains itself; its own codec reports everything else.
		if d.pkg == r.home {
			if _, err := r.fields(d); err != nil && strings.Contains(err.Error(), "contains itself") {
				return nil, err
			}
		}
		return &typ{kind: kCodec, src: src}, nil
	}
	if d.pkg.encodes[name] && d.pkg.decodes[name] {
		return &typ{kind: kCodec, src: src}, nil
	}
	if _, ok := d.spec.Type.(*ast.StructType); ok {
		return nil, fmt.Errorf("struct %s has no codec: put %s over it", src, directive)
	}
	r.open[d] = true
	defer delete(r.open, d)
	under, err := r.resolve(d.file, d.pkg, d.spec.Type, tag)
	if err != nil {
		return nil, err
	}
	t := *under
	t.src = src
	return &t, nil
}

// external resolves pkgName.name as seen from file.
func (r *resolver) external(file *ast.File, pkgName, name, tag string) (*typ, error) {
	importPath, err := r.m.importOf(file, pkgName)
	if err != nil {
		return nil, err
	}
	p, err := r.m.load(importPath)
	if err != nil {
		return nil, err
	}
	if p != nil {
		d, ok := p.types[name]
		if !ok {
			return nil, fmt.Errorf("package %s declares no type %s", importPath, name)
		}
		return r.named(d, tag)
	}
	k, ok := map[string]kind{"int": kInt, "uint": kUint, "string": kString}[tag]
	if !ok {
		return nil, fmt.Errorf(`%s.%s is from outside the module: say what it is with codec:"int", "uint" or "string"`, pkgName, name)
	}
	if err := r.needPath(pkgName, importPath); err != nil {
		return nil, err
	}
	return &typ{kind: k, src: pkgName + "." + name}, nil
}

// qualify names a declaration of package p from the generated file.
func (r *resolver) qualify(p *pkg, name string) string {
	if p == r.home {
		return name
	}
	return p.name + "." + name
}

func (r *resolver) need(p *pkg) error {
	if p == r.home {
		return nil
	}
	return r.needPath(p.name, p.path)
}

func (r *resolver) needPath(name, importPath string) error {
	if have, ok := r.imports[name]; ok && have != importPath {
		return fmt.Errorf("two packages called %s (%s, %s): codecgen can't tell them apart", name, path.Clean(have), importPath)
	}
	r.imports[name] = importPath
	return nil
}

func kindName(e ast.Expr) string {
	switch e.(type) {
	case *ast.InterfaceType:
		return "an interface"
	case *ast.ChanType:
		return "a channel"
	case *ast.FuncType:
		return "a function"
	case *ast.IndexExpr, *ast.IndexListExpr:
		return "a generic type"
	}
	return fmt.Sprintf("this form of type (%T)", e)
}
