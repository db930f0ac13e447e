package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What prose points at.
var (
	quoted   = regexp.MustCompile("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.*{},-]+)+/?)`") // a path, in backquotes
	linked   = regexp.MustCompile(`\]\(([^):#]+)\)`)                                // [text](path)
	manPage  = regexp.MustCompile(`\b(g[a-z]+(?:\.conf)?)\(([1-8])\)`)              // gsubmit(1), gbatch.conf(5)
	bookPage = regexp.MustCompile(`\b((?:[A-Za-z_./]+/)?[A-Z]{4,}\.md)\b`)          // DESIGN.md, ../X.md
	oneTest  = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
)

// foreign are manual pages of the system that begin like ours.
var foreign = map[string]bool{"getopt": true, "getrandom": true, "getpwuid": true, "glob": true, "getent": true,
	"getrlimit": true, "gettid": true}

// TestPointers: every path, page and test that a doc.go, a .md or a manual page names exists.
func TestPointers(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	docs := map[string]string{}
	tests := map[string]bool{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (name == ".git" || rel == "bin" || rel == "dist") {
				return filepath.SkipDir
			}
			paths = append(paths, "/"+rel)
			return nil
		}
		paths = append(paths, "/"+rel)
		name := d.Name()
		prose := name == "doc.go" || strings.HasSuffix(name, ".md") || filepath.Dir(rel) == "man"
		if !prose && !strings.HasSuffix(name, "_test.go") || strings.Contains(rel, "/testdata/") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if prose {
			docs[rel] = string(text)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for doc, text := range docs {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			name := strings.TrimSuffix(m[1], "/")
			if first, _, _ := strings.Cut(name, "/"); strings.ContainsAny(name, "*{") || !below(first, top...) &&
				first != "testdata" {
				continue // a pattern, or a path of another place
			}
			if !exists(paths, "/"+name) {
				t.Errorf("%s names %s, which is nowhere", doc, name)
			}
		}
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), m[1])); strings.HasSuffix(doc, ".md") && err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
		for _, m := range bookPage.FindAllStringSubmatch(text, -1) {
			name := m[1]
			here := filepath.Join(filepath.Dir(doc), name)
			if _, err := os.Stat(filepath.Join(root, here)); err == nil {
				continue
			}
			if strings.HasPrefix(name, ".") || !strings.Contains(name, "/") && name != "CONTRIBUTING.md" &&
				name != "README.md" || !exists(paths, "/"+name) {
				t.Errorf("%s points at %s, which is not there", doc, name)
			}
		}
		for _, m := range manPage.FindAllStringSubmatch(text, -1) {
			if !foreign[m[1]] && !exists(paths, "/man/"+m[1]+"."+m[2]) {
				t.Errorf("%s names %s(%s): there is no such page", doc, m[1], m[2])
			}
		}
		for _, m := range oneTest.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s names %s, and there is no such test", doc, m[1])
			}
		}
	}
}
