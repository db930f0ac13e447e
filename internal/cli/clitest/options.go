package clitest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
)

// NoEnv is an Env for a table of options that is not used for parsing.
func NoEnv() *env.Env { return &env.Env{Lookup: func(string) (string, bool) { return "", false }} }

// CheckOptions checks a command's options: none is declared twice, each can be set or is refused, and its manual page
// lists exactly the refused ones as refused.
func CheckOptions(t *testing.T, name string, table []getopt.Option) {
	t.Helper()
	if err := getopt.Check(table); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	option := regexp.MustCompile(`--[a-z][a-z-]*`)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "man", name+".1"))
	if err != nil {
		t.Fatal(err)
	}
	sentence := regexp.MustCompile(`(?m)^Options of Slurm that are not here yet.*(\n[^.\n].*)*`).FindString(string(text))
	if sentence == "" {
		return // its help has the list
	}
	said := option.FindAllString(strings.ReplaceAll(sentence, `\-`, "-"), -1)
	var refused []string
	for i := range table {
		if o := &table[i]; o.Refused != "" && o.Name != "" && !o.Hidden {
			refused = append(refused, "--"+o.Name)
		}
	}
	for _, o := range said {
		if !slices.Contains(refused, o) {
			t.Errorf("%s.1 says that %s is refused, and it is not", name, o)
		}
	}
	for _, o := range refused {
		if !slices.Contains(said, o) {
			t.Errorf("%s.1 does not say that %s is refused", name, o)
		}
	}
}
