package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gbatch/internal/conf"
)

// Files are the configuration to write, by name.
type Files struct {
	Text map[string]string
	// Nodes and Partitions are what it defines.
	Nodes, Partitions int
}

// Names gives the names of the files in order.
func (f *Files) Names() []string {
	out := make([]string, 0, len(f.Text))
	for name := range f.Text {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// maxRounds is how often what conf refuses is taken out.
const maxRounds = 16

// ReadFiles reads the configuration in a directory and makes ours of it, which conf.Load takes without an error. work
// is an empty directory for trying it. An error says why there can be none.
func ReadFiles(dir, work string, r *Report) (*Files, error) {
	main := filepath.Join(dir, conf.SlurmFile)
	if _, err := os.Stat(main); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no slurm.conf in this directory", dir)
	} else if err != nil {
		return nil, err
	}
	c := carry{r: r, names: map[string]string{main: conf.MainFile}, settings: map[string]bool{}}
	out, err := c.round(main)
	if err != nil {
		return nil, err
	}
	if err := c.others(dir, out); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		if err := writeAll(work, out); err != nil {
			return nil, err
		}
		main = filepath.Join(work, conf.MainFile)
		_, problems, cfg := conf.Survey(main)
		if cfg != nil {
			return &Files{out, len(cfg.Nodes), len(cfg.Partitions)}, nil
		}
		if n == maxRounds {
			return nil, fmt.Errorf("%s can't be made valid: %s", dir, firstError(problems))
		}
		again := carry{r: r, again: true, names: map[string]string{main: conf.MainFile}, settings: c.settings}
		before := len(r.Items)
		if out, err = again.round(main); err != nil {
			return nil, err
		}
		if out[conf.TopologiesFile] == "" {
			if err := os.Remove(filepath.Join(work, conf.TopologiesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if len(r.Items) == before { // nothing more can be taken out
			return nil, fmt.Errorf("%s can't be made valid: %s", dir, firstError(problems))
		}
	}
}

func firstError(problems []conf.Problem) string {
	for _, p := range problems {
		if p.Severity == conf.Error {
			return p.String()
		}
	}
	return ""
}

func writeAll(dir string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// carry makes our files of those that one main file leads to.
type carry struct {
	r        *Report
	again    bool              // of our own files: only errors are of interest
	names    map[string]string // the name that each file gets
	settings map[string]bool   // keys of the main file that are set, in lower case
}

// round reads a configuration and gives its files, without what conf refuses.
func (c *carry) round(main string) (map[string]string, error) {
	statements, problems, _ := conf.Survey(main)
	for _, p := range problems {
		if p.Line == 0 && p.Severity == conf.Error && strings.Contains(p.Text, "can't be read") {
			return nil, errors.New(p.String())
		}
	}
	dir := filepath.Dir(main)
	topology := conf.TopologyFile
	if _, err := os.Stat(filepath.Join(dir, conf.TopologiesFile)); err == nil {
		bad := false
		for _, p := range problems {
			if p.Severity == conf.Error && filepath.Base(p.File) == conf.TopologiesFile {
				bad = true
				c.problem(p, "", false)
			}
		}
		if !bad { // else others makes a topology.conf of what can be used
			topology = conf.TopologiesFile
			if !c.again {
				c.r.Add(Kept, filepath.Join(dir, topology), 0, "topology", "")
			}
		}
	}
	for _, name := range []string{conf.GresFile, conf.CgroupFile, topology, conf.ContainerFile, conf.OCIFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			c.names[filepath.Join(dir, name)] = name
		}
	}
	for _, s := range statements {
		if s.IncludeFile == "" || c.names[s.IncludeFile] != "" {
			continue
		}
		name := filepath.Base(s.IncludeFile)
		for slices.Contains(slices.Collect(maps.Values(c.names)), name) {
			name = "included-" + name
		}
		c.names[s.IncludeFile] = name
	}
	out := map[string]string{}
	files := slices.SortedFunc(maps.Keys(c.names), func(a, b string) int { // the main file first
		if (a == main) != (b == main) {
			if a == main {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, file := range files {
		name := c.names[file]
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its Include is taken out
		}
		if err != nil {
			return nil, err
		}
		out[name] = c.file(file, string(data), statements, problems)
	}
	return out, nil
}

// file gives one file's text with the statements that change written otherwise.
func (c *carry) file(file, text string, statements []conf.Surveyed, problems []conf.Problem) string {
	lines := strings.SplitAfter(text, "\n")
	var mine []conf.Problem
	for _, p := range problems {
		if p.File == file {
			mine = append(mine, p)
		}
	}
	done := make([]bool, len(mine))
	var out strings.Builder
	at := 1
	for _, s := range statements {
		if s.File != file || s.Line < at || s.Last > len(lines) {
			continue
		}
		for ; at < s.Line; at++ {
			out.WriteString(lines[at-1])
		}
		old := strings.Join(lines[s.Line-1:s.Last], "")
		at = s.Last + 1
		var here []conf.Problem
		for i, p := range mine {
			if p.Line >= s.Line && p.Line <= s.Last {
				here, done[i] = append(here, p), true
			}
		}
		out.WriteString(c.statement(s, old, here))
	}
	var rest []conf.Problem
	for i, p := range mine {
		if !done[i] {
			rest = append(rest, p)
		}
	}
	for ; at <= len(lines); at++ {
		line := lines[at-1]
		for _, p := range rest { // a line without a statement in it
			if p.Line == at && p.Severity == conf.Error {
				line = commented(line, p.Text)
				c.r.Add(Person, p.File, p.Line, "", "%s", textOf(p))
				break
			}
		}
		out.WriteString(line)
	}
	for _, p := range rest {
		if p.Line == 0 && !c.again {
			c.problem(p, "", false)
		}
	}
	return out.String()
}

// statement gives one statement as it is written here.
func (c *carry) statement(s conf.Surveyed, old string, problems []conf.Problem) string {
	if s.IncludeFile != "" {
		return c.include(s, old, problems)
	}
	record := strings.EqualFold(s.Pairs[0].Key, "NodeName") || strings.EqualFold(s.Pairs[0].Key, "PartitionName") ||
		len(s.Pairs) > 1 && !s.Pairs[0].Inert
	drop := make([]string, len(s.Pairs)) // why a pair is taken out
	whole := ""
	used := make([]bool, len(problems))
	for i := len(s.Pairs) - 1; i >= 0; i-- { // what is said of a key also names the line's kind, its first key
		pair := s.Pairs[i]
		c.settings[strings.ToLower(pair.Key)] = true
		found := false
		for k, p := range problems {
			if used[k] || !strings.Contains(strings.ToLower(p.Text), strings.ToLower(pair.Key)) {
				continue
			}
			used[k] = true
			if c.again && p.Severity != conf.Error {
				continue
			}
			found = true
			c.problem(p, pair.Key+"="+pair.Value, pair.Inert)
			if p.Severity == conf.Error || pair.Inert {
				drop[i] = p.Text
			}
		}
		if !found && !c.again {
			c.r.Add(Kept, s.File, s.Line, pair.Key, "")
		}
	}
	for k, p := range problems {
		if used[k] || c.again && p.Severity != conf.Error {
			continue
		}
		c.problem(p, s.Pairs[0].Key+"="+s.Pairs[0].Value, false)
		if p.Severity == conf.Error {
			whole = p.Text
		}
	}
	var kept []string
	why := whole
	for i, pair := range s.Pairs {
		if drop[i] != "" {
			if why == "" {
				why = drop[i]
			}
			continue
		}
		kept = append(kept, pair.Key+"="+quoted(pair.Value))
	}
	switch {
	case why == "":
		return old
	case whole != "" || len(kept) == 0 || record && drop[0] != "":
		return commented(old, why)
	}
	return commented(old, why) + strings.Join(kept, " ") + "\n"
}

// include gives an Include line: the file lies beside the main file.
func (c *carry) include(s conf.Surveyed, old string, problems []conf.Problem) string {
	for _, p := range problems {
		if p.Severity == conf.Error {
			c.r.Add(Person, s.File, s.Line, "Include "+s.IncludeName, "%s", textOf(p))
			return commented(old, p.Text)
		}
	}
	name := c.names[s.IncludeFile]
	if name == s.IncludeName {
		if !c.again {
			c.r.Add(Kept, s.File, s.Line, "Include "+name, "")
		}
		return old
	}
	if !c.again {
		c.r.Add(Translated, s.File, s.Line, "Include "+s.IncludeName, "Include %s, a copy beside the main file", name)
	}
	return "Include " + name + "\n"
}

// problem enters what conf says of a key.
func (c *carry) problem(p conf.Problem, key string, inert bool) {
	kind := Translated
	switch {
	case p.Severity == conf.Error:
		kind = Person
	case p.Severity == conf.Warning:
		kind = Unsupported
	case inert, strings.Contains(p.Text, "has no effect"), strings.Contains(p.Text, "is obsolete"),
		strings.Contains(p.Text, "changes nothing"):
		kind = Ignored
	}
	file := p.File
	if c.again {
		file = filepath.Base(file)
	}
	c.r.Add(kind, file, p.Line, key, "%s", textOf(p))
}

func textOf(p conf.Problem) string {
	if p.Hint == "" {
		return p.Text
	}
	return p.Text + "; " + p.Hint
}

// commented takes lines out, and says why.
func commented(text, why string) string {
	var b strings.Builder
	b.WriteString("# not imported: " + strings.ReplaceAll(why, "\n", " ") + "\n")
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString("#" + strings.TrimRight(line, "\\ \t\r") + "\n")
	}
	return b.String()
}

// quoted writes a value so that conf reads it as it is.
func quoted(v string) string {
	v = strings.ReplaceAll(strings.ReplaceAll(v, `\`, `\\`), `"`, `\"`)
	if strings.ContainsAny(v, " \t#") || v == "" {
		return `"` + v + `"`
	}
	return v
}
