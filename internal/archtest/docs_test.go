package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goFile is a Go file's name in prose, with or without folders before it.
var goFile = regexp.MustCompile(`[A-Za-z0-9_./-]*[A-Za-z0-9_]\.go\b`)

// TestDocumentsNameFilesThatExist: a file that a document names exists: at that path, beside the document, or by that
// name anywhere below it.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	var paths, documents []string
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(root, path)
		switch filepath.Ext(path) {
		case ".go":
			paths = append(paths, "/"+rel)
		case ".md":
			documents = append(documents, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, d := range documents {
		text, err := os.ReadFile(filepath.Join(root, d))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range goFile.FindAllString(string(text), -1) {
			named++
			if !exists(paths, "/"+strings.TrimPrefix(name, "./")) {
				t.Errorf("%s names %s, which is nowhere", d, name)
			}
		}
	}
	if named == 0 {
		t.Errorf("%d documents name no file: this test shows nothing", len(documents))
	}
}

func exists(paths []string, end string) bool {
	for _, p := range paths {
		if strings.HasSuffix(p, end) {
			return true
		}
	}
	return false
}
