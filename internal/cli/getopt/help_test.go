package getopt

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"gbatch/internal/golden"
)

func TestHelp(t *testing.T) {
	var r request
	p := sbatch(&r)
	for name, text := range map[string]string{"help.txt": p.Help(), "usage.txt": p.Usage()} {
		for _, line := range strings.Split(text, "\n") {
			if utf8.RuneCountInString(line) > Columns || strings.TrimRight(line, " ") != line {
				t.Errorf("%s: %q", name, line)
			}
		}
		golden.Compare(t, filepath.Join("testdata", name), []byte(text))
	}
}
