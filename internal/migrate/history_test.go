package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gbatch/internal/golden"
	"gbatch/internal/model"
)

// readAll reads a history, and its bad rows.
func readAll(t testing.TB, text string, o HistoryOptions) (h *History, records []*model.Record, bad []string) {
	t.Helper()
	o.Zone = time.UTC
	h, err := NewHistory(strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, err := h.Next()
		var row *RowError
		switch {
		case errors.Is(err, io.EOF):
			return h, records, bad
		case errors.As(err, &row):
			bad = append(bad, row.Error())
		case err != nil:
			t.Fatal(err)
		default:
			records = append(records, r)
		}
	}
}

func file(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRealHistory reads what real Slurm has printed: steps, an array, a heterogeneous job, a cancelled and a requeued
// one, and bars in a name, a command line and a comment.
func TestRealHistory(t *testing.T) {
	h, records, bad := readAll(t, file(t, "history.txt"), HistoryOptions{Cluster: "ours"})
	if len(bad) > 0 || h.Counts.Jobs != 13 || h.Counts.Steps != 14 || len(h.Left) > 0 {
		t.Errorf("%+v, left out %v, bad rows %v", h.Counts, h.Left, bad)
	}
	var b bytes.Buffer
	for _, r := range records {
		step := ""
		if s := r.Step; s != nil {
			step = fmt.Sprintf(" step %d %q %v tasks=%d cpus=%d mem=%d %v exit=%d:%d stop=%d cpu=%d+%dms", s.ID, s.Name,
				s.Nodes, s.Tasks, s.CPUs, s.MemMiB, s.Gres, s.Exit.Code, s.Exit.Signal, s.Stop, s.Exit.UserMS, s.Exit.SysMS)
			fmt.Fprintf(&b, "%d/%d%s\n", r.Job, r.Attempt, step)
			continue
		}
		fmt.Fprintf(&b, "%d/%d %q array=%d_%d het=%v %s by %d %d-%d-%d-%d limit=%d nodes=%s(%d) cpus=%d/%d mem=%d/%d "+
			"gres=%v/%v asked=%+v exit=%d:%d worst=%d cpu=%d+%dms comment=%q\n", r.Job, r.Attempt, r.Name, r.ArrayID, r.Task,
			r.Het, r.State, r.CancelUID, r.Submit, r.Eligible, r.Start, r.End, r.LimitS, r.Nodes, r.NumNodes, r.ReqCPUs,
			r.AllocCPUs, r.ReqMemMiB, r.AllocMemMiB, r.ReqGres, r.AllocGres, *r.Asked, r.Exit.Code, r.Exit.Signal,
			r.Exit.Worst, r.Exit.UserMS, r.Exit.SysMS, r.Comment)
	}
	golden.Compare(t, filepath.Join("testdata", "history.golden"), b.Bytes())

	// All columns give the same records, but for what is in one dump only.
	_, all, bad := readAll(t, file(t, "history-all.txt"), HistoryOptions{Cluster: "ours"})
	if len(bad) > 0 || len(all) != len(records) {
		t.Fatalf("%d records, %d of all columns, bad rows %v", len(records), len(all), bad)
	}
	for i, r := range records {
		a := *all[i]
		a.Reason = r.Reason
		if !reflect.DeepEqual(&a, r) {
			t.Errorf("row %d\n%+v\n%+v", i, r, &a)
		}
	}
}

const head = "JobID|JobIDRaw|JobName|UID|State|Submit|Start|End|Comment\n"

func TestRows(t *testing.T) {
	const at = "2026-01-02T03:04:05"
	good := "|" + at + "|" + at + "|" + at + "|"
	for _, c := range []struct{ name, rows, want, bad string }{
		{"plain", "1|1|a|5|COMPLETED" + good + "x\n", "1 a COMPLETED x", ""},
		{"trailing bar", "1|1|a|5|COMPLETED" + good + "x|\n", "1 a COMPLETED x", ""},
		{"bar in a name", "1|1|a|b|5|COMPLETED" + good + "x\n", "1 a|b COMPLETED x", ""},
		{"bar in a comment", "1|1|a|5|COMPLETED" + good + "x|y\n", "1 a COMPLETED x|y", ""},
		{"line break", "1|1|a|5|COMPLETED" + good + "x\n2|2|b|5|FAILED" + good + "y\n", "1 a COMPLETED x,2 b FAILED y", ""},
		{"line break in a name", "1|1|a\nb|5|COMPLETED" + good + "x\n", "1 a\nb COMPLETED x", ""},
		{"short row before a whole one", "1|1|a\n2|2|b|5|FAILED" + good + "y\n", "2 b FAILED y",
			"line 2: 3 columns where the header has 9"},
		{"array", "3_7|9|a|5|TIMEOUT" + good + "\n", "9 a TIMEOUT ", ""},
		{"not over", "1|1|a|5|RUNNING|" + at + "|" + at + "|Unknown|\n1.0|1.0|s|5|RUNNING|" + at + "|" + at +
			"|Unknown|\n", "", ""},
		{"cancelled by", "1|1|a|5|CANCELLED by 7" + good + "\n", "1 a CANCELLED ", ""},
		{"no state", "1|1|a|5|DONE" + good + "\n", "", `line 2: State is "DONE"`},
		{"no number", "x|x|a|5|FAILED" + good + "\n", "", `line 2: "x" is no number of a job`},
		{"zero", "0|0|a|5|FAILED" + good + "\n", "", `line 2: "0" is no number of a job`},
		{"a step alone", "1.0|1.0|a|5|FAILED" + good + "\n", "", `line 2: the step "1.0" is not below the row of its job`},
		{"ends before it starts", "1|1|a|5|FAILED|" + at + "|" + at + "|2026-01-02T03:04:04|\n", "",
			"line 2: column End 2026-01-02T03:04:04 is before Start " + at},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, records, bad := readAll(t, head+c.rows, HistoryOptions{})
			var got []string
			for _, r := range records {
				got = append(got, fmt.Sprintf("%d %s %s %s", r.Job, r.Name, r.State, r.Comment))
			}
			if g := strings.Join(got, ","); g != c.want {
				t.Errorf("records %q, want %q", g, c.want)
			}
			if g := strings.Join(bad, ","); g != c.bad {
				t.Errorf("bad rows %q, want %q", g, c.bad)
			}
		})
	}
}

// TestHeaders: what no record can be made of is refused with what to print instead.
func TestHeaders(t *testing.T) {
	for head, want := range map[string]string{
		"":                                   "JobIDRaw",
		"JobIDRaw|State":                     "Submit",
		"JobIDRaw|State|Submit|Start|End":    "UID",
		"JobName|State|Submit|Start|End|UID": "JobIDRaw",
	} {
		_, err := NewHistory(strings.NewReader(head), HistoryOptions{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), sacctCall) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// TestRequeued: runs of a job are told apart by when they were submitted, in whatever order they come.
func TestRequeued(t *testing.T) {
	row := "8|8|a|5|REQUEUED|2026-01-02T03:04:05|2026-01-02T03:04:06|2026-01-02T03:04:07|\n"
	again := strings.ReplaceAll(strings.Replace(row, "REQUEUED", "COMPLETED", 1), "T03:", "T04:")
	_, one, _ := readAll(t, head+row+again, HistoryOptions{})
	_, two, _ := readAll(t, head+again+row+again, HistoryOptions{})
	if len(one) != 2 || len(two) != 3 || one[0].Attempt >= one[1].Attempt {
		t.Fatalf("%d and %d records", len(one), len(two))
	}
	if !reflect.DeepEqual(one[1], two[0]) || !reflect.DeepEqual(one[1], two[2]) || !reflect.DeepEqual(one[0], two[1]) {
		t.Error("the same row gives another record")
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int64{"00:00.020": 20, "00:01:02": 62000, "1-02:03:04": 93784000, "": 0,
		"01:02.5": 62500, "x": -1, "1": -1, "1:2:3:4": -1, "-1:00": -1, "99999999999999-00:00:00": -1} {
		got, ok := spanMS(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("spanMS(%q) = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{"8000M": 8000, "16G": 16384, "1.50G": 1536, "1T": 1 << 20, "512": 512,
		"2048K": 2, "": 0, "-1M": -1, "NaN": -1, "xM": -1} {
		got, ok := size(text, 20, 20)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("size(%q) = %d MiB, want %d", text, got, want)
		}
	}
	got, ok := readTRES("billing=3,cpu=2,gres/gpu:a100=2,gres/gpu=3,gres/shard=4,license/ansys=1,mem=1.5G,node=1")
	want := tres{CPUs: 2, Nodes: 1, MemMiB: 1536, Bill: 3, Given: true,
		Gres: []model.GresCount{{Name: "gpu", Type: "a100", Count: 2}, {Name: "gpu", Count: 1},
			{Name: "shard", Count: 4}},
		Licenses: []model.LicenseCount{{Name: "ansys", Count: 1}}}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// FuzzHistory: no rows make it panic, go on for ever, or give a record that can't be stored.
func FuzzHistory(f *testing.F) {
	f.Add(file(f, "history.txt"))
	f.Add(head + "1|1|a|b|5|COMPLETED|2026-01-02T03:04:05|1|2|\n1.batch|1.batch|||\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := NewHistory(strings.NewReader(text), HistoryOptions{Zone: time.UTC})
		if err != nil {
			return
		}
		for n := 0; n <= strings.Count(text, "\n")+1; n++ {
			r, err := h.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && (r.Job == 0 || r.Attempt == 0 || r.Step == nil && (r.End == 0 || r.End < r.Start)) {
				t.Fatalf("%+v", r)
			}
		}
		t.Fatal("more rows than lines")
	})
}
