package cli

import (
	"testing"
	"time"

	"gbatch/internal/cli/getopt"
)

// TestOptionTables: no command declares an option twice, or one that can't be set and isn't refused.
func TestOptionTables(t *testing.T) {
	e := &Env{Lookup: func(string) (string, bool) { return "", false }}
	for name, table := range map[string][]getopt.Option{
		"gacct": (&account{Env: e}).options(), "gacctmgr": (&manage{Env: e}).options(), "ginfo": (&info{Env: e}).options(), "gprio": (&prio{Env: e}).options(),
		"gqueue": (&queue{Env: e}).options(), "gshare": (&share{Env: e}).options(), "gstat": (&statCall{Env: e}).options(), "grun": (&run{Env: e}).options(),
		"gsubmit": (&submission{}).options(time.Now),
	} {
		if err := getopt.Check(table); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
