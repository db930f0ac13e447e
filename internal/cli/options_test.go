package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
)

func optionTables() map[string][]getopt.Option {
	e := &env.Env{Lookup: func(string) (string, bool) { return "", false }}
	return map[string][]getopt.Option{
		"gacct": (&account{Env: e}).options(), "gacctmgr": (&manage{Env: e}).options(), "ginfo": (&info{Env: e}).options(), "gprio": (&prio{Env: e}).options(),
		"gqueue": (&queue{Env: e}).options(), "gshare": (&share{Env: e}).options(), "gstat": (&statCall{Env: e}).options(), "grun": (&run{Env: e}).options(),
		"gsubmit": (&submission{}).options(time.Now),
	}
}

// TestOptionTables: no command declares an option twice, or one that can't be set and isn't refused.
func TestOptionTables(t *testing.T) {
	for name, table := range optionTables() {
		if err := getopt.Check(table); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusedInManualPages: what a page says is refused is, and what is refused is said to be.
func TestRefusedInManualPages(t *testing.T) {
	sentence := regexp.MustCompile(`(?m)^Options of Slurm that are not here yet.*$`)
	option := regexp.MustCompile(`--[a-z][a-z-]*`)
	for name, table := range optionTables() {
		text, err := os.ReadFile(filepath.Join("..", "..", "man", name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !sentence.Match(text) {
			continue // its help has the list
		}
		said := option.FindAllString(strings.ReplaceAll(sentence.FindString(string(text)), `\-`, "-"), -1)
		var refused []string
		for i := range table {
			if o := &table[i]; o.Refused != "" && o.Name != "" && !o.Hidden {
				refused = append(refused, "--"+o.Name)
			}
		}
		slices.Sort(said)
		slices.Sort(refused)
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
}
