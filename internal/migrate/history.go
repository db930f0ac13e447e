package migrate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/suggest"
)

// HistoryOptions say how rows of sacct are read.
type HistoryOptions struct {
	Cluster string         // under which the records are kept
	Zone    *time.Location // of the times; nil: this host's
	// UID looks up a user, for dumps without the column UID.
	UID func(name string) (uint32, bool)
}

// History reads what `sacct -P` prints: a line with the names of the columns, then one for each job and step.
type History struct {
	// Cluster is the cluster of the rows, if they say.
	Cluster string
	// Left are the columns whose values gbatch has no place for, in the order of the header.
	Left []string
	// Counts are what was read so far.
	Counts HistoryCounts

	o       HistoryOptions
	in      *bufio.Reader
	columns []string
	col     map[string]int
	texts   []int // columns of free text, in which there may be a |
	line    int   // of the row that was read last
	fields  []string
	held    string // a line that was read ahead
	isHeld  bool
	reason  map[string]model.Reason
	uids    map[string]uint32
	job     *model.Record // the job that steps belong to
	raw     string        // its JobIDRaw
	skipped bool          // its row was left out, so its steps are too
}

// HistoryCounts count rows.
type HistoryCounts struct {
	Jobs, Steps int64
	Unfinished  int64 // rows of jobs that were not over when the dump was made
	Joined      int64 // rows with a line break in a value
	Bars        int64 // rows with a | in a value
	NoUser      int64 // jobs of users that this host does not know, without a UID
}

// RowError is a row that can't be read. The next one may be.
type RowError struct {
	Line int
	Text string
}

func (e *RowError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Limits of what is read.
const (
	maxRow     = 4 << 20 // bytes of a row
	maxColumns = 1024
	maxJoined  = 256 // lines of one row
	maxUIDs    = 1 << 16
)

// sacctCall prints what is wanted.
const sacctCall = "sacct -P -a -D -S 2000-01-01 -o ALL"

// textColumns may hold anything that users type.
var textColumns = []string{"jobname", "submitline", "comment", "admincomment", "systemcomment", "workdir", "container",
	"extra", "stdout", "stderr", "stdin", "failednode", "constraints", "reservation", "wckey"}

// kept are the columns that records have a place for; derived ones follow from others.
var (
	kept = []string{"account", "admincomment", "alloccpus", "ncpus", "alloctres", "cluster", "comment", "constraints",
		"derivedexitcode", "eligible", "end", "exitcode", "failednode", "gid", "group", "jobid", "jobidraw", "jobname",
		"licenses", "maxdiskread", "maxdiskwrite", "maxpages", "maxrss", "maxrssnode", "maxvmsize", "nnodes",
		"nodelist", "ntasks", "partition", "priority", "qos", "reason", "reqcpus", "reqmem", "reqtres", "reservation",
		"restarts", "start", "state", "stderr", "stdin", "stdout", "submit", "submitline", "suspended", "systemcpu",
		"timelimit", "timelimitraw", "totalcpu", "uid", "user", "usercpu", "wckey", "wckeyid",
		"workdir"}
	derived = []string{"allocnodes", "associd", "avecpu", "cputime", "cputimeraw", "dbindex", "elapsed", "elapsedraw",
		"planned", "plannedcpu", "plannedcpuraw", "qosraw", "qosreq", "reqnodes", "reserved", "resvcpu", "resvcpuraw"}
)

// NewHistory reads the header. Errors say what to print instead.
func NewHistory(in io.Reader, o HistoryOptions) (*History, error) {
	h := &History{o: o, in: bufio.NewReaderSize(in, 1<<18), col: map[string]int{}, reason: reasons(),
		uids: map[string]uint32{}}
	if h.o.Zone == nil {
		h.o.Zone = time.Local
	}
	head, err := h.readLine()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for i, name := range strings.Split(strings.TrimSuffix(head, "|"), "|") {
		lower := strings.ToLower(strings.TrimSpace(name))
		if i >= maxColumns {
			return nil, fmt.Errorf("more than %d columns; `%s` prints what is wanted", maxColumns, sacctCall)
		}
		if _, twice := h.col[lower]; !twice {
			h.col[lower] = i
		}
		h.columns = append(h.columns, name)
		if slices.Contains(textColumns, lower) {
			h.texts = append(h.texts, i)
		}
		if lower != "" && !slices.Contains(kept, lower) && !slices.Contains(derived, lower) {
			h.Left = append(h.Left, name)
		}
	}
	if !h.has("jobid") && !h.has("jobidraw") {
		return nil, fmt.Errorf("the first line names no column JobIDRaw: `%s` prints what is wanted", sacctCall)
	}
	for _, want := range []string{"State", "Submit", "Start", "End"} {
		if !h.has(strings.ToLower(want)) {
			return nil, fmt.Errorf("there is no column %s; `%s` prints what is wanted%s", want, sacctCall,
				suggest.Question("", suggest.Nearest(strings.ToLower(want), h.columns)))
		}
	}
	if !h.has("user") && !h.has("uid") {
		return nil, fmt.Errorf("there is no column UID and no column User; `%s` prints what is wanted", sacctCall)
	}
	return h, nil
}

func (h *History) has(column string) bool { _, ok := h.col[column]; return ok }

// Line is the line of the row that was read last.
func (h *History) Line() int { return h.line }

// get gives a value of the present row.
func (h *History) get(column string) string {
	if i, ok := h.col[column]; ok && i < len(h.fields) {
		return h.fields[i]
	}
	return ""
}

// readLine reads one line of bounded length.
func (h *History) readLine() (string, error) {
	if h.isHeld {
		h.isHeld = false
		h.line++
		return h.held, nil
	}
	h.line++
	var long []byte
	for {
		part, err := h.in.ReadSlice('\n')
		switch {
		case err == nil || errors.Is(err, io.EOF):
			if errors.Is(err, io.EOF) && len(part) == 0 && len(long) == 0 {
				return "", io.EOF
			}
			text := part
			if long != nil {
				text = append(long, part...)
			}
			return strings.TrimRight(string(text), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		}
		if long = append(long, part...); len(long) > maxRow {
			for errors.Is(err, bufio.ErrBufferFull) { // the rest of it
				_, err = h.in.ReadSlice('\n')
			}
			return "", &RowError{h.line, fmt.Sprintf("longer than %d bytes", maxRow)}
		}
	}
}

// readRow reads the fields of the next row. A value may have a line break or a | in it; sacct marks neither.
func (h *History) readRow() error {
	text, err := h.readLine()
	if err != nil {
		return err
	}
	for text == "" {
		if text, err = h.readLine(); err != nil {
			return err
		}
	}
	first := h.line
	want := len(h.columns)
	h.fields = strings.Split(text, "|")
	for n := 1; len(h.fields) < want && len(h.texts) > 0 && n < maxJoined; n++ {
		next, err := h.readLine()
		if err != nil || len(text)+len(next) > maxRow || h.isRow(next) {
			if err == nil { // a row of its own: the one before is short
				h.held, h.isHeld, h.line = next, true, h.line-1
			}
			break
		}
		text += "\n" + next
		h.fields = strings.Split(text, "|")
		if n == 1 {
			h.Counts.Joined++
		}
	}
	if len(h.fields) == want+1 && h.fields[want] == "" {
		h.fields = h.fields[:want] // sacct -p ends rows with a |
	}
	switch {
	case len(h.fields) < want:
		return &RowError{first, fmt.Sprintf("%d columns where the header has %d", len(h.fields), want)}
	case len(h.fields) > want:
		if !h.align(want) {
			return &RowError{first, fmt.Sprintf("%d columns where the header has %d; a value with a | in it? "+
				"leave out JobName, SubmitLine and Comment", len(h.fields), want)}
		}
		h.Counts.Bars++
	}
	return nil
}

// isRow reports whether a line is a whole row by itself, so that it does not continue the one before.
func (h *History) isRow(text string) bool {
	if strings.Count(text, "|") < len(h.columns)-1 {
		return false
	}
	was := h.fields
	h.fields = strings.Split(text, "|")
	_, ok := h.id()
	h.fields = was
	return ok
}

// align finds out which values had the bars: of all ways to join the extra fields to columns of text, the first after
// which the others can be read. Two columns that hold the same text twice, as a job's name in its command line, need
// the extra fields spread over several columns.
func (h *History) align(want int) bool {
	all, extra := h.fields, len(h.fields)-want
	tries := maxTries
	var place func(from int, left int, got []string) bool
	place = func(column, left int, got []string) bool {
		if tries--; tries < 0 {
			return false
		}
		if column == want {
			if left > 0 {
				return false
			}
			h.fields = got
			return h.plausible()
		}
		at := column + extra - left
		most := 0
		if slices.Contains(h.texts, column) {
			most = left
		}
		for n := most; n >= 0; n-- {
			if place(column+1, left-n, append(got[:column:column], strings.Join(all[at:at+n+1], "|"))) {
				return true
			}
		}
		return false
	}
	if extra > maxBars || !place(0, extra, make([]string, 0, want)) {
		h.fields = all
		return false
	}
	return true
}

// Bounds of align.
const (
	maxBars  = 32
	maxTries = 20000
)

// plausible reports whether the fields of a row fit their columns.
func (h *History) plausible() bool {
	if _, ok := h.id(); !ok {
		return false
	}
	if _, _, ok := state(h.get("state")); !ok {
		return false
	}
	for _, c := range []string{"submit", "eligible", "start", "end"} {
		if _, ok := moment(h.get(c), h.o.Zone); !ok {
			return false
		}
	}
	for _, c := range []string{"totalcpu", "usercpu", "systemcpu", "suspended", "elapsed", "cputime"} {
		if _, ok := spanMS(h.get(c)); !ok {
			return false
		}
	}
	for _, c := range []string{"reqtres", "alloctres"} {
		if _, ok := readTRES(h.get(c)); !ok {
			return false
		}
	}
	for _, c := range []string{"exitcode", "derivedexitcode"} {
		if _, _, ok := exit(h.get(c)); !ok {
			return false
		}
	}
	for _, c := range []string{"uid", "gid", "priority", "nnodes", "ntasks", "ncpus", "alloccpus", "reqcpus", "qosraw",
		"restarts", "elapsedraw", "cputimeraw", "wckeyid", "reqnodes"} {
		if strings.Trim(h.get(c), "0123456789") != "" {
			return false
		}
	}
	// A command line names the program first; the directory is absolute.
	if d := h.get("workdir"); d != "" && d[0] != '/' {
		return false
	}
	if name, line := h.get("jobname"), h.get("submitline"); strings.Contains(name, "|") && line != "" &&
		h.has("submitline") && !strings.Contains(line, name) {
		return false
	}
	if c := h.get("comment"); c != "" {
		if _, after, given := strings.Cut(h.get("submitline"), "--comment"); given {
			return strings.HasPrefix(strings.TrimLeft(after, " ="), c)
		}
	}
	return true
}

// Next gives the record of the next row: a job's or, with Step, a step's. A row of a job that is not over, and its
// steps, are counted and passed over. The error is io.EOF at the end, a *RowError for a row that can't be read, or that
// of the reader.
func (h *History) Next() (*model.Record, error) {
	for {
		if err := h.readRow(); err != nil {
			return nil, err
		}
		at := h.line
		r, err := h.record()
		if err != nil {
			return nil, &RowError{at, err.Error()}
		}
		if r != nil {
			return r, nil
		}
	}
}
