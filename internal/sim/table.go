package sim

import (
	"encoding/csv"
	"strconv"
	"strings"
	"time"
)

// table reads lines of fields under a header that names them.
type table struct {
	l    *lines
	col  map[string]int
	n    int
	sep  byte
	line []string
	hint string // what to do about a line that has more fields than the header
}

// newTable takes the header. Names are compared without case.
func newTable(l *lines, head string, sep byte) (*table, error) {
	t := &table{l: l, col: map[string]int{}, sep: sep}
	names, err := t.cut(head)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		name, _, _ = strings.Cut(name, "%") // gacct -P --format=JobID%20
		t.col[strings.ToLower(strings.TrimSpace(name))] = i
	}
	t.n = len(names)
	return t, nil
}

// cut splits a line; a CSV field may be quoted.
func (t *table) cut(line string) ([]string, error) {
	if t.sep != ',' || !strings.Contains(line, `"`) {
		return strings.Split(line, string(t.sep)), nil
	}
	r := csv.NewReader(strings.NewReader(line))
	r.FieldsPerRecord = -1
	f, err := r.Read()
	if err != nil {
		return nil, t.l.bad("the quotes of this CSV line don't match: a field is wanted as text or as \"text\"")
	}
	return f, nil
}

// next takes the next line; comments and empty lines are passed over.
func (t *table) next() (bool, error) {
	for {
		line, ok := t.l.next()
		if !ok {
			return false, nil
		}
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		if t.line, err = t.cut(line); err != nil {
			return false, err
		}
		if len(t.line) == t.n+1 && t.line[t.n] == "" { // sacct -p ends each line with a separator
			t.line = t.line[:t.n]
		}
		if len(t.line) != t.n {
			return false, t.l.bad("%d fields, and the header names %d%s", len(t.line), t.n, t.hint)
		}
		return true, nil
	}
}

// has gives the first of several names that the header has, or "".
func (t *table) has(names ...string) string {
	for _, name := range names {
		if _, ok := t.col[name]; ok {
			return name
		}
	}
	return ""
}

// text gives a field, "" where the header has none of the name.
func (t *table) text(name string) string {
	if i, ok := t.col[name]; ok && name != "" {
		return strings.TrimSpace(t.line[i])
	}
	return ""
}

// number gives a field that is a number of at least 0, or empty and then 0. Fractions are cut off.
func (t *table) number(name string, most int64) (int64, error) {
	s := t.text(name)
	if s == "" {
		return 0, nil
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil && v >= 0 && v <= most {
		return v, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0) || v > float64(most) {
		return 0, t.l.bad("%s is %q: a number from 0 to %d is wanted", name, shorten(s), most)
	}
	return int64(v), nil
}

// dates are the forms of a moment in a trace.
var dates = []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", time.RFC3339}

// moment gives a field's Unix seconds; false where it holds none (Unknown, None, empty).
func (t *table) moment(name string) (int64, bool, error) {
	s := t.text(name)
	switch s {
	case "", "Unknown", "None", "N/A":
		return 0, false, nil
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil && v >= 0 && v < 1<<40 {
		return v, true, nil
	}
	for _, form := range dates {
		if at, err := time.Parse(form, s); err == nil && at.Unix() > 0 {
			return at.Unix(), true, nil
		}
	}
	return 0, false, t.l.bad("%s is %q: a time such as 2026-01-31T12:00:00 is wanted, or Unix seconds", name, shorten(s))
}

// rebase makes the first submission second 0 of a workload whose times are Unix seconds.
func (w *Workload) rebase() {
	if len(w.Jobs) == 0 {
		return
	}
	first := w.Jobs[0].Submit
	for i := range w.Jobs {
		first = min(first, w.Jobs[i].Submit)
	}
	for i := range w.Jobs {
		w.Jobs[i].Submit -= first
	}
	w.Epoch = first
}
