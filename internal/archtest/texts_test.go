package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// decodesAsIs is a call that reads a message without care for its texts.
var decodesAsIs = regexp.MustCompile(`\b(proto\.Decode(With)?|wire\.(Read(Message|Values)|Unmarshal)\w*)\(|\bwire\.AsIs\b`)

// TestCommandsDecodeWithCare: commands read answers through their client, which replaces the characters of others'
// texts that would act on a terminal or forge a line.
func TestCommandsDecodeWithCare(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(filepath.Join(root, "internal", "cli"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "/clitest/") {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if call := decodesAsIs.FindString(line); call != "" {
				t.Errorf("%s:%d: %s reads texts as they are: use the client's Call or Decode", path, i+1, call)
			}
		}
		return nil
	})
	if err != nil || files < 50 {
		t.Fatalf("%d files, %v", files, err)
	}
}
