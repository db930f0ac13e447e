package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gbatch/internal/cli/env"
)

// TestManualPages: every option in a command's help, the refused ones too, is in its manual page.
func TestManualPages(t *testing.T) {
	option := regexp.MustCompile(`--[A-Za-z][A-Za-z-]*`)
	for _, c := range commands() {
		text, err := os.ReadFile(filepath.Join("..", "..", "man", c.name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		page := map[string]bool{}
		for _, o := range option.FindAllString(strings.ReplaceAll(string(text), `\-`, "-"), -1) {
			page[o] = true
		}
		if !strings.Contains(string(text), c.slurm) {
			t.Errorf("%s.1 doesn't name %s", c.name, c.slurm)
		}
		var out strings.Builder
		Main(&env.Env{Program: c.name, Args: []string{"--help"}, Stdout: &out, Stderr: &out,
			Lookup: func(string) (string, bool) { return "", false }})
		n := 0
		for line := range strings.SplitSeq(out.String(), "\n") {
			head, _, _ := strings.Cut(strings.TrimPrefix(line, "  "), "   ")
			if !strings.HasPrefix(line, "  ") || !strings.HasPrefix(strings.TrimSpace(head+line), "-") {
				continue
			}
			if !strings.HasPrefix(line, "  --") { // an entry: only its own name; otherwise the list of refused ones
				line = line[:min(len(line), 50)]
				if i := strings.Index(line, "--"); i > 6 || i < 0 {
					continue
				}
				line = option.FindString(line)
			}
			for _, o := range option.FindAllString(line, -1) {
				n++
				if !page[o] {
					t.Errorf("%s.1 doesn't have %s", c.name, o)
				}
			}
		}
		least := 8
		switch c.name {
		case "gseff":
			least = 3 // it has jobs and --help
		case "gcrontab":
			least = 7
		}
		if n < least {
			t.Errorf("%s: only %d options found in its help", c.name, n)
		}
	}
}

// TestManualTags: the line below .TP of an option has only the option. When a page was wrapped, it was once joined with
// its text, and man printed the whole sentence as the tag.
func TestManualTags(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "man", "*"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	span, word := regexp.MustCompile(`\\f[BI].*?\\fR`), regexp.MustCompile(`[A-Za-z]{3,}`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		tag := false
		for i, line := range strings.Split(string(text), "\n") {
			if tag && strings.HasPrefix(line, `\fB\-`) && word.MatchString(span.ReplaceAllString(line, "")) {
				t.Errorf("%s:%d: the tag has text: begin a new line after the option", page, i+1)
			}
			tag = line == ".TP"
		}
	}
}
