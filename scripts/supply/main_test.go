package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// output runs a command in the repository's root.
func output(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestNotices: the notices that are installed have the licence of every module that is linked, in full, and none of a
// module that is not. The archived bolt is not linked.
func TestNotices(t *testing.T) {
	text, err := output(t, nil, "scripts/notices.sh")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	list, err := output(t, []string{"CGO_ENABLED=0"}, "go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{with .Replace}}{{.Path}}{{end}}{{end}}{{end}}", "./cmd/...")
	if err != nil {
		t.Fatalf("%v\n%s", err, list)
	}
	linked := map[string]bool{}
	for line := range strings.Lines(list) {
		name, stand, _ := strings.Cut(strings.TrimSpace(line), "|")
		if linked[name] = true; name == "" || stand != "" {
			delete(linked, name)
		}
	}
	if len(linked) < 15 {
		t.Fatalf("%d modules are linked: %v", len(linked), linked)
	}
	mpl := 0
	for name := range linked {
		if strings.HasPrefix(name, "github.com/boltdb/bolt ") {
			t.Errorf("%s is linked", name)
		}
		_, section, found := strings.Cut(text, "\n==== "+name+": LICENSE")
		if !found {
			if _, section, found = strings.Cut(text, "\n==== "+name+": "); !found {
				t.Errorf("no licence of %s", name)
				continue
			}
		}
		section, _, _ = strings.Cut(section, "\n==== ")
		switch id := spdx(section); {
		case id == "":
			t.Errorf("the licence of %s is not recognized:\n%.300s", name, section)
		case id == "MPL-2.0":
			if mpl++; !strings.Contains(section, "Exhibit B") {
				t.Errorf("the MPL of %s is not whole", name)
			}
		}
	}
	if mpl < 3 {
		t.Errorf("%d modules under MPL-2.0", mpl)
	}
	if strings.Contains(text, "boltdb/bolt") || !strings.Contains(text, "==== Go go1.") {
		t.Error("the notices name bolt, or lack Go")
	}
}

// TestSBOM: the list has the modules of the programs, and is the same when it is made again.
func TestSBOM(t *testing.T) {
	dir := t.TempDir()
	if out, err := output(t, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/",
		"./cmd/gctld", "./cmd/gshim"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	programs := []string{filepath.Join(dir, "gshim"), filepath.Join(dir, "gctld")}
	var first, again bytes.Buffer
	if err := run(&first, programs); err != nil {
		t.Fatal(err)
	}
	if err := run(&again, programs); err != nil || !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Errorf("two lists of the same programs differ: %v", err)
	}
	var got bom
	if err := json.Unmarshal(first.Bytes(), &got); err != nil || got.Format != "CycloneDX" || got.Spec != "1.5" {
		t.Fatalf("%v, %+v", err, got)
	}
	ids := map[string]string{}
	for _, c := range got.Components {
		if c.Type == "library" {
			ids[c.Name] = c.Licenses[0].License.ID
		}
	}
	if ids["github.com/hashicorp/raft"] != "MPL-2.0" || ids["golang.org/x/sys"] != "BSD-3-Clause" ||
		ids["std"] != "BSD-3-Clause" {
		t.Errorf("%v", ids)
	}
	for _, c := range got.Components {
		if c.Name == "github.com/boltdb/bolt" && (c.PURL != "" || c.Version != "") {
			t.Errorf("bolt itself is linked: %+v", c)
		}
	}
	if deps := got.Dependencies; len(deps) != 3 || len(deps[2].DependsOn) >= len(deps[1].DependsOn) {
		t.Errorf("%+v", deps)
	}
	if run(&again, []string{"main.go"}) == nil {
		t.Error("a text is a program")
	}
}

// TestVuln: a vulnerability that is called fails; a database that can't be had does not.
func TestVuln(t *testing.T) {
	for _, c := range []struct {
		says string
		code string
		ok   bool
		want string
	}{
		{"No vulnerabilities found.", "0", true, "No vulnerabilities"},
		{"Vulnerability #1: GO-2026-0001", "3", false, "a known vulnerability is called"},
		{"govulncheck: fetching vulnerabilities: dial tcp: lookup vuln.go.dev: no such host", "1", true, "NOT RUN"},
		{"govulncheck: loading packages: there are errors", "1", false, "loading packages"},
	} {
		fake := filepath.Join(t.TempDir(), "go")
		script := "#!/bin/sh\necho '" + c.says + "'\nexit " + c.code + "\n"
		if err := os.WriteFile(fake, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		out, err := output(t, []string{"GO=" + fake}, "scripts/vuln.sh")
		if (err == nil) != c.ok || !strings.Contains(out, c.want) {
			t.Errorf("%q with %s: %v, %q", c.says, c.code, err, out)
		}
	}
}
