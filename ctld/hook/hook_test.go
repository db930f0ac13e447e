package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// TestMain is for the processes that become a program.
func TestMain(m *testing.M) {
	if status, handled := program.Main(os.Args); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// script writes a shell script that is the program.
func script(t *testing.T, lines string) *model.SubmitHook {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &model.SubmitHook{Program: path, LimitS: 10, Parallel: 2}
}

func submission() *Call {
	return &Call{Action: Submit, User: "ann", UID: 1001, Part: -1, Spec: &model.Spec{Name: "j", LimitS: model.NotSet}}
}

// TestAnswers: what a program may write, and what is said of all else.
func TestAnswers(t *testing.T) {
	for _, c := range []struct{ action, in, want string }{
		{Submit, ``, `[] [] "" ""`},
		{Submit, `{"set":{"account":"a","time_limit":60,"memory_per_node":4096,"hold":true,"begin_time":5}}`,
			`[{Account a} {StartTime @5000} {Hold 1} {MinMemoryNode 4096M} {TimeLimit 60}] [] "" ""`},
		{Submit, `{"environment":{"A":"b","C":null}}`, `[] [{A b false} {C  true}] "" ""`},
		{Submit, `{"refuse":""}`, `[] [] "" "the site refuses it, and gives no reason"`},
		{Modify, `{"set":{"admin_comment":"x"},"message":" m\n"}`, `[{AdminComment x}] [] "m" ""`},
		{Submit, `{"set":{"admin_comment":"x"}}`, "changes only"},
		{Modify, `{"set":{"gpu_mem":1}}`, "submission only"},
		{Modify, `{"environment":{"A":"b"}}`, "has been submitted"},
		{Submit, `{"set":{"array":"1-3"}}`, "can't be changed"},
		{Submit, `{"set":{"hold":"yes"}}`, "true or false"},
		{Submit, `{"set":{"tasks":1.5}}`, "as whole number"},
		{Submit, `{"set":{"tasks":null}}`, "as whole number"},
		{Submit, `{"set":{"begin_time":9e99}}`, "seconds since 1970"},
		{Submit, `{"sett":{}}`, "unknown field"},
		{Submit, `{} {}`, "more than one"},
		{Submit, `[1]`, "gbatch-hooks(7)"},
		{Submit, `{"environment":{"A=B":"x"}}`, "can't be"},
		{Submit, `{"set":{"comment":"` + strings.Repeat("x", maxValue+1) + `"}}`, "more than"},
	} {
		a, err := read(c.action, []byte(c.in))
		got := ""
		if err == nil {
			got = fmt.Sprintf("%v %v %q %q", a.Set, a.Env, a.Message, a.Refuse)
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %.80s: %s %v; want %s", c.action, c.in, got, err, c.want)
		}
	}
}

// TestProgramsThatFail: each way to fail is an error in time, and what the program has started ends with it.
func TestProgramsThatFail(t *testing.T) {
	dir := t.TempDir()
	for lines, want := range map[string]string{
		"exit 3":                               "exited with 3",
		"kill -9 $$":                           "does not run",
		"cat >/dev/null; yes":                  "has not answered within 1 s",
		"sleep 1000":                           "has not answered within 1 s",
		"head -c 300000 /dev/zero":             "more than 262144 bytes",
		"echo hello":                           "not the JSON",
		"(sleep 1000; echo >" + dir + "/x) & ": "",
	} {
		rules := script(t, lines)
		rules.LimitS = 1
		begin := time.Now()
		_, _, err := new(Runner).Run(t.Context(), rules, program.As{}, submission())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %s", lines, err, want)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("%s: took %s", lines, took)
		}
	}
	rules := script(t, "")
	rules.Program += "-missing"
	if _, _, err := new(Runner).Run(t.Context(), rules, program.As{}, submission()); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing: %v", err)
	}
}

// TestTurns: no more than Parallel programs run at once, half of them for one user; who waits gets the next turn.
func TestTurns(t *testing.T) {
	r, rules := &Runner{}, &model.SubmitHook{Parallel: 4}
	enter := func(uid uint32) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return r.enter(ctx, rules, uid)
	}
	for i, uid := range []uint32{1, 1, 2, 2} {
		if err := enter(uid); err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
	}
	if enter(3) == nil {
		t.Error("a fifth of four")
	}
	r.leave(2)
	if enter(1) == nil {
		t.Error("a third of one user's two")
	}
	got := make(chan error)
	if err := enter(3); err != nil {
		t.Error(err)
	}
	go func() { got <- r.enter(t.Context(), rules, 1) }()
	r.leave(1)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if r.running != 4 || len(r.of) != 3 || r.waiting != 0 {
		t.Errorf("%d run, of %v, %d wait", r.running, r.of, r.waiting)
	}
}

// TestEveryKeyHasAMember: what gcontrol update job sets, the program can set.
func TestEveryKeyHasAMember(t *testing.T) {
	for _, key := range ask.JobKeys {
		if key != "NumCPUs" && keyed(key) == nil { // NumCPUs is tasks in other words
			t.Errorf("%s has no member", key)
		}
	}
	seen := map[string]bool{}
	for i := range Members {
		if m := &Members[i]; seen[m.Name] || seen[m.Key] && m.Key != "" {
			t.Errorf("%s is there twice", m.Name)
		} else {
			seen[m.Name], seen[m.Key] = true, true
		}
	}
}

// TestInput: what the program reads is JSON, with what was asked for and nothing else.
func TestInput(t *testing.T) {
	c := submission()
	c.Script, c.Env = []byte("#!/bin/sh\n\xff"), []byte("A=b\x00C=d=e\x00")
	c.Spec.Gres = []model.GresReq{{Name: "gpu", Type: "a100", Count: 2, Per: model.PerJob}}
	data, err := c.input(5)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Job         map[string]any
		Environment map[string]string
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Job) != 2 || got.Job["name"] != "j" || got.Job["tres_per_job"] != "gpu:a100:2" ||
		got.Environment["C"] != "d=e" {
		t.Errorf("%s", data)
	}
}

// TestPageHasTheTable: gbatch-hooks(7) has the table of members as it is here.
func TestPageHasTheTable(t *testing.T) {
	path := filepath.Join("..", "..", "man", "gbatch-hooks.7")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = ".\\\" The table of ctld/hook.\n.EX\n", ".EE\n"
	head, rest, ok := strings.Cut(string(page), begin)
	was, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	now := table()
	if was == now {
		return
	}
	if os.Getenv("GBATCH_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(head+begin+now+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the table of %s is another one than the code's (GBATCH_REWRITE=1 writes it):\n%s", path, now)
}

func table() string {
	var b strings.Builder
	for i := range Members {
		m := &Members[i]
		may := "set"
		if m.Key == "" {
			may = "-"
		}
		fmt.Fprintf(&b, "%-25s %-3s %-19s %s\n", m.Name, may, m.form, strings.ReplaceAll(m.about, "-", `\-`))
	}
	return b.String()
}
