package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gbatch/internal/model"
)

// missing.go warns about directories and files that a job needs and this host doesn't have. The job's nodes may have
// them, so the job is not refused.

// missing gives a sentence for each file or directory of a job that this host doesn't have.
func missing(sp *model.Spec) []string {
	var out []string
	dir := sp.WorkDir
	here := isDir(dir) == nil
	if err := isDir(dir); err != nil {
		then := "the job runs in /tmp"
		if !filepath.IsAbs(sp.StdOut) {
			then = "the job fails, for its output is to lie in it"
		}
		out = append(out, fmt.Sprintf("the working directory %s %s on this host; where it is missing %s",
			dir, said(err), then))
	}
	place := func(pattern string) string {
		if !filepath.IsAbs(pattern) {
			return filepath.Join(dir, pattern)
		}
		return pattern
	}
	seen := map[string]bool{}
	for _, f := range []struct{ option, pattern string }{{"--output", sp.StdOut}, {"--error", sp.StdErr}} {
		if f.pattern == "" || !filepath.IsAbs(f.pattern) && !here {
			continue
		}
		path := place(f.pattern)
		at, whole := known(filepath.Dir(path))
		if seen[at] {
			continue
		}
		if err := isDir(at); err != nil {
			seen[at] = true
			out = append(out, fmt.Sprintf(
				"the directory %s of %s %s on this host; a job whose files can't be opened fails, and no directory is made for it",
				at, f.option, said(err)))
		} else if info, err := os.Stat(path); whole && err == nil && info.IsDir() {
			out = append(out, fmt.Sprintf("%s=%s is a directory; name a file in it", f.option, f.pattern))
		}
	}
	if in := sp.StdIn; in != "" && !strings.Contains(in, "%") && (filepath.IsAbs(in) || here) {
		if _, err := os.Stat(place(in)); err != nil {
			out = append(out, fmt.Sprintf("the file %s of --input %s on this host; a job whose files can't be opened fails",
				place(in), said(err)))
		}
	}
	return out
}

// known gives the part of a directory before its first pattern; whole says that it has none.
func known(dir string) (at string, whole bool) {
	i := strings.IndexByte(dir, '%')
	if i < 0 {
		return dir, true
	}
	return filepath.Dir(dir[:i] + "x"), false
}

func isDir(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return errNoDir
	}
	return err
}

var errNoDir = errors.New("is not a directory")

func said(err error) string {
	switch {
	case errors.Is(err, errNoDir):
		return "is no directory"
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Sprintf("can't be looked at (%v)", err)
}
