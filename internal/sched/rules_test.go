package sched

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRulesAreNamed checks testdata/README.md, which lists each rule with its tests: it names every transcript, and
// every transcript, session and test that it names exists.
func TestRulesAreNamed(t *testing.T) {
	text, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## ")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1) {
		name := m[1]
		if named[name] {
			continue
		}
		named[name] = true
		switch test, dir, isTest := strings.Cut(name, " of "); {
		case isTest:
			if !declares(t, dir, test) {
				t.Errorf("%s: there is no such test", name)
			}
		case strings.HasPrefix(name, "session "):
			exists(t, filepath.Join("../devcluster/testdata/script", strings.TrimPrefix(name, "session ")+".txtar"))
		default:
			exists(t, filepath.Join("testdata", name+".txt"))
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".txt"); !named[name] {
			t.Errorf("testdata/README.md does not say which rule %s is for", name)
		}
	}
}

func exists(t *testing.T, file string) {
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// declares reports whether a folder has a test of a name.
func declares(t *testing.T, dir, test string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}
