package queue

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"slices"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// queueTable holds the printed lines of gqueue's table with their sort keys, so that jobs need not stay in memory.
type queueTable struct {
	printer *format.Printer[jobtext.JobRow]
	fields  [256]*jobtext.JobField // by letter
	sort    []format.SortKey
	tiers   map[string]int64 // of partitions, which count before priorities; nil: lines are of whole jobs
	lines   []queueLine
	text    []byte // the current block of lines
	keys    []format.SortValue
	names   map[string]string
	scratch []byte
}

type queueLine struct {
	text []byte
	keys []format.SortValue
	tie  int64 // the array's number, then the task's
	seq  int
}

const (
	textBlock = 64 << 10
	textSpare = 1 << 10 // below this, a new block is allocated
	keyBlock  = 4 << 10
)

func newQueueTable(p *format.Printer[jobtext.JobRow], lang *format.Language[jobtext.JobRow],
	sort []format.SortKey) *queueTable {
	t := &queueTable{printer: p, sort: sort, names: map[string]string{}}
	for i := range lang.Fields {
		if f := &lang.Fields[i]; f.Letter != 0 {
			t.fields[f.Letter] = f
		}
	}
	return t
}

// add formats a row; it keeps no reference to it.
func (t *queueTable) add(r *jobtext.JobRow) {
	if cap(t.text)-len(t.text) < textSpare {
		t.text = make([]byte, 0, textBlock)
	}
	start := len(t.text)
	t.text = t.printer.AppendRow(t.text, r)
	if cap(t.keys)-len(t.keys) < len(t.sort) {
		t.keys = make([]format.SortValue, 0, max(keyBlock, len(t.sort)))
	}
	first := len(t.keys)
	for _, k := range t.sort {
		t.keys = append(t.keys, t.value(r, k.Letter))
	}
	t.lines = append(t.lines, queueLine{t.text[start:len(t.text):len(t.text)], t.keys[first:len(t.keys):len(t.keys)],
		number(r),
		len(t.lines)})
}

// value gives a row's sort key for a letter.
func (t *queueTable) value(r *jobtext.JobRow, letter byte) format.SortValue {
	n := int64(0)
	switch letter {
	case 'i':
		n = number(r)
	case 'A':
		n = int64(r.ID)
	case 'F':
		n = int64(r.ArrayOrID())
	case 'K':
		n = jobtext.TaskOrder(r.OneTask)
	case 'p', 'Q':
		n = t.tier(r)<<32 | int64(r.ShownPriority())
	case 'M':
		n = r.ElapsedS(r.At)
	case 'l':
		n = r.TimeLimitS()
	case 'L':
		n = r.TimeLimitS() - r.ElapsedS(r.At)
	case 'S':
		n = int64(orLast(r.Begins()))
	case 'e':
		switch {
		case r.End != nil:
			n = int64(r.End.At)
		case r.Run != nil:
			n = int64(orLast(r.Run.Deadline()))
		default:
			n = math.MaxInt64
		}
	case 'V':
		n = int64(r.Submit)
	case 'C':
		_, c := r.Size()
		n = int64(c)
	case 'D':
		c, _ := r.Size()
		n = int64(c)
	case 'm':
		n = r.MemMiB()
	case 'c':
		n = r.MinCPUs()
	case 'd':
		n = r.Spec.TmpMiB
	case 'U':
		n = int64(r.Spec.UID)
	case 'G':
		n = int64(r.Spec.GID)
	case 'y':
		n = int64(r.Spec.Nice)
	case 't':
		return format.SortValue{S: r.State.Short()}
	case 'T':
		return format.SortValue{S: r.State.String()}
	default:
		if f := t.fields[letter]; f != nil && f.Append != nil {
			t.scratch = f.Append(t.scratch[:0], r)
		} else if f != nil {
			t.scratch = append(t.scratch[:0], f.Get(r)...)
		}
		if letter == 'N' {
			t.scratch = firstNode(t.scratch)
		}
		s, ok := t.names[string(t.scratch)]
		if !ok {
			s = string(t.scratch)
			t.names[s] = s
		}
		if s == "" || strings.IndexByte("fzHIJ", letter) >= 0 && (s == "(null)" || strings.Trim(s, "*:") == "") {
			n = 1 // what is empty, or was not asked for, comes last
		}
		return format.SortValue{N: n, S: s}
	}
	return format.SortValue{N: n}
}

// tier gives the tier of a line's partition.
func (t *queueTable) tier(r *jobtext.JobRow) int64 {
	name := r.OnePartition
	if parts := r.Partitions(); name == "" && len(parts) > 0 {
		name = parts[0]
	}
	return t.tiers[name]
}

// firstNode cuts a list of nodes off after the first one's name: of n[2-3],m1 it leaves n2.
func firstNode(list []byte) []byte {
	at := bytes.IndexAny(list, "[,")
	if at < 0 {
		return list
	}
	if list[at] == '[' {
		first := list[at+1:]
		if end := bytes.IndexAny(first, "-,]"); end >= 0 {
			first = first[:end]
		}
		return append(list[:at], first...)
	}
	return list[:at]
}

func orLast(t model.Time) model.Time {
	if t == 0 {
		return math.MaxInt64
	}
	return t
}

// write prints the lines in order. Lines with equal keys are in the order of jobs and tasks.
func (t *queueTable) write(w io.Writer) error {
	slices.SortFunc(t.lines, func(a, b queueLine) int {
		for i, k := range t.sort {
			c := cmp.Compare(a.keys[i].N, b.keys[i].N)
			if c == 0 {
				c = strings.Compare(a.keys[i].S, b.keys[i].S)
			}
			if c != 0 {
				if k.Down {
					return -c
				}
				return c
			}
		}
		return cmp.Or(cmp.Compare(a.tie, b.tie), cmp.Compare(a.seq, b.seq))
	})
	for _, l := range t.lines {
		if _, err := w.Write(l.text); err != nil {
			return err
		}
	}
	return nil
}

// number orders jobs by the array's number, then the task's.
func number(r *jobtext.JobRow) int64 { return int64(r.ArrayOrID())<<32 | jobtext.TaskOrder(r.OneTask) }
