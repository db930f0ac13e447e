package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/walltime"
)

// output.go shows the end of a job's output to its owner, and what has become of an array.

// tailWait bounds how long a page waits for output: the job's file system may hang, and the page is of use without it.
const tailWait = 1500 * time.Millisecond

// tail is the end of one file.
type tail struct {
	File, Text string
	Size       string
	Whole      bool // nothing stands before it
	Written    model.Time
}

// tails adds the ends of a job's files of output and of errors, as its first node has them.
func (q *request) tails(x *job, j *model.Job) {
	if x.Out == os.DevNull {
		return
	}
	at := j.Run.Alloc.Nodes[0].Node
	x.Command = "grun -p " + j.Partition() + " -w " + at + " tail -n 50 " + word(x.Out)
	if !j.State.Finished() {
		x.Command = "grun --jobid=" + x.Ref + " --overlap tail -n 50 " + word(x.Out)
	}
	own := *q
	ctx, cancel := context.WithTimeout(q.ctx, tailWait)
	defer cancel()
	own.ctx = ctx
	for _, errs := range []bool{false, true} {
		if errs && x.Err == x.Out {
			break
		}
		var reply proto.TailReply
		if err := own.ask(proto.KindTail, &proto.TailRequest{Job: j.ID, Err: errs}, &reply); err != nil {
			var said *rpc.Error
			switch {
			case ctx.Err() != nil:
				x.TailWhy = "Node " + at + " does not answer in time."
			case errors.As(err, &said) && said.Code == proto.CodeAccess:
				x.Command = "" // it is not this reader's
			default:
				x.TailWhy = sentence(env.Text(err))
			}
			break
		}
		e := &reply.End
		t := tail{File: reply.File, Text: readable(e.Text), Whole: int64(len(e.Text)) == e.Size, Written: e.Written,
			Size: walltime.FormatRounded(e.Size >> 20)}
		if e.Size < 1<<20 {
			t.Size = fmt.Sprintf("%dK", (e.Size+1023)>>10)
		}
		if !t.Whole { // from the first whole line on
			if _, rest, cut := strings.Cut(t.Text, "\n"); cut && rest != "" {
				t.Text = rest
			}
		}
		x.Tails = append(x.Tails, t)
	}
}

// escapes are sequences that colour a terminal or move its cursor.
var escapes = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[@-Z\\\\^_])")

// readable is output as a terminal would have left it: of a line that was written again and again, as a progress bar
// is, the last one.
func readable(out []byte) string {
	lines := strings.Split(escapes.ReplaceAllString(strings.ToValidUTF8(string(out), "\uFFFD"), ""), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f {
				return -1
			}
			return r
		}, line[strings.LastIndexByte(line, '\r')+1:])
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// word writes a file's name as a word of a shell.
func word(name string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// tally counts tasks by their state.
type tally struct {
	all, tasks int
	by         map[model.JobState]int
}

// add counts a job, and reports whether it is among those that a page lists.
func (t *tally) add(j *model.Job) bool {
	n := 1
	if j.IsArray() {
		n = j.Tasks.Count()
	}
	if t.by == nil {
		t.by = map[model.JobState]int{}
	}
	t.by[j.State] += n
	t.all++
	t.tasks += n
	return t.all <= maxRows
}

// wholeArray makes the page of several of an array's tasks that of the array.
func (x *job) wholeArray(t *tally) {
	id := fmt.Sprint(x.ArrayID)
	x.Number, x.Ref, x.jobLine.Ref, x.Exact = id, id, id, id
	states := make([]model.JobState, 0, len(t.by))
	for s := range t.by {
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b model.JobState) int {
		return cmp.Or(cmp.Compare(t.by[b], t.by[a]), cmp.Compare(a, b))
	})
	var parts []string
	bad, runs, waits := false, false, false
	for _, s := range states {
		parts = append(parts, count(t.by[s])+" "+stateWord(s))
		switch {
		case s == model.Pending:
			waits = true
		case !s.Finished():
			runs = true
		case s != model.Completed:
			bad = true
		}
	}
	x.Class = map[bool]string{true: "bad", false: "good"}[bad]
	if waits {
		x.Class = "waits"
	}
	if runs {
		x.Class = "runs"
	}
	x.Array = plural(t.tasks, "task", "tasks") + ": " + strings.Join(parts, ", ")
	x.Where, x.Start = "", 0 // one task's
	slices.SortStableFunc(x.Tasks, func(a, b *jobLine) int { return cmp.Compare(a.Task, b.Task) })
}
