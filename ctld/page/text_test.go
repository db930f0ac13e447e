package page

import (
	"context"
	"errors"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// sharing is a cluster that knows shares, and whose reader is no operator.
type sharing struct {
	nobody
	rows []proto.ShareRow
}

func (s sharing) Ask(_ context.Context, _ *proto.Caller, _ uint16, _ proto.Message,
	each func([]byte) error) (time.Duration, error) {
	body, err := proto.Encode(&proto.SharesReply{Rows: s.rows})
	if err != nil {
		return 0, err
	}
	return 0, each(body)
}

func (sharing) MayAsk(*proto.Caller, uint16) error { return errors.New("no") }

func (sharing) MayChange(who *proto.Caller, sp *model.Spec) bool { return who.UID == sp.UID }

// TestOwnShares: the reader's rows are those of the reader's name. Rows without usage have no user id.
func TestOwnShares(t *testing.T) {
	c := sharing{rows: []proto.ShareRow{{Account: "a", User: "ann", Depth: 1},
		{Account: "a", User: "bob", UID: 7, Depth: 1}}}
	for _, who := range []*proto.Caller{{UID: 0, User: "root"}, {UID: 5, User: "ann"}, {UID: 7, User: "bob"}} {
		q := &request{p: New(&Options{Cluster: c}), ctx: t.Context(), who: who}
		v, err := shares(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range v.(*sharesView).Rows {
			if row.Mine != (row.User == who.User) {
				t.Errorf("%s reads, and the row of %s is the reader's: %v", who.User, row.User, row.Mine)
			}
		}
		if q.operates() {
			t.Errorf("%s has buttons for nodes", who.User)
		}
	}
}

// TestLocal: after signing in a reader goes to pages of this server only.
func TestLocal(t *testing.T) {
	for to, want := range map[string]string{"/job/7": "/job/7", "/queue?user=a&partition=b": "/queue?user=a&partition=b",
		"": "/", "//elsewhere.example/": "/", `/\elsewhere.example`: "/", "https://elsewhere.example/": "/",
		"javascript:alert(1)": "/", "/a\nb": "/", "job/7": "/", `/a\b`: "/"} {
		if got := local(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

// TestReadable: output is shown as a terminal would have left it.
func TestReadable(t *testing.T) {
	out := "\x1b[1;32mepoch 1\x1b[0m\r\n 10%\r 50%\r100%\r\n\x1b]0;title\x07loss\t0.5\x00\xff\n\n"
	if got, want := readable([]byte(out)), "epoch 1\n100%\nloss\t0.5\uFFFD"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWord: a file's name in a command is one word of a shell.
func TestWord(t *testing.T) {
	for name, want := range map[string]string{"/a/b-1.out": "/a/b-1.out", "/a b": "'/a b'", "/it's": `'/it'\''s'`,
		"/$(x)": "'/$(x)'"} {
		if got := word(name); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestSentence: names and options keep their letters.
func TestSentence(t *testing.T) {
	for text, want := range map[string]string{"needs 2 GPUs": "Needs 2 GPUs", "": "",
		"--gpus=2 is too much": "--gpus=2 is too much",
		"a_b.sh ended":         "a_b.sh ended"} {
		if got := sentence(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := reasonText(model.ReasonResources); got == "Resources" || got == "" {
		t.Error("a reason is a code:", got)
	}
}

// TestWholeArray: the page of an array counts its tasks, waiting ones too, and is about none of them.
func TestWholeArray(t *testing.T) {
	done := &model.Job{ID: 8, ArrayID: 7, Task: 0, State: model.Completed}
	x, sum := &job{jobLine: &jobLine{Job: done, Number: "7_0", Ref: "7_0"}}, tally{}
	for range 1200 {
		sum.add(done)
	}
	sum.add(&model.Job{ID: 9, ArrayID: 7, Task: 1, State: model.Failed})
	x.Tasks = []*jobLine{{Job: &model.Job{Task: 9}}, {Job: done}}
	x.wholeArray(&sum)
	if x.Tasks[0].Job != done {
		t.Error("tasks are not in order")
	}
	if want := "1\u202f201 tasks: 1\u202f200 completed, 1 failed"; x.Array != want || x.Class != "bad" ||
		x.Number != "7" || x.Ref != "7" || x.jobLine.Ref != "7" {
		t.Errorf("%q %q %q", x.Array, x.Class, x.Number)
	}
}

// TestMeanUse: what a job without GPUs used of its CPUs is a share of them.
func TestMeanUse(t *testing.T) {
	use := &model.Usage{Nodes: []model.NodeUsage{{UserMS: 70_000, SysMS: 10_000}}}
	l := &jobLine{Elapsed: 10, CPUs: 16}
	l.meanUse(&model.Job{End: &model.End{Exit: model.Exit{Use: use}}})
	if want := "50\u00a0% of 16 CPUs"; l.UseText != want || l.Use.Pct != 50 {
		t.Errorf("%q, want %q", l.UseText, want)
	}
}
