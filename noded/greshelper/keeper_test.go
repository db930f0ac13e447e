package greshelper

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test's own program be the keeper.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Word {
		os.Exit(Main(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// keep starts a keeper of a helper that is a shell script.
func keep(t *testing.T, script string) (*exec.Cmd, *word) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helper")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], Argv("", 1, path)[1:]...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(`{"job_id":7}`), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	w := &word{}
	if err := json.NewDecoder(out).Decode(w); err != nil {
		t.Fatal(err)
	}
	return cmd, w
}

// TestKeeper: a helper gets its line, its answer comes back, it outlives the job's signals and ends with its input.
func TestKeeper(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	cmd, w := keep(t, `read -r line; echo "{\"env\":{\"A\":\"$line\"}}" | tr -d '{}' >`+file+`
echo '{"env":{"A":"b"}}'; echo more; cat >/dev/null; echo over >>`+file)
	a, err := w.read(nil)
	if err != nil || !slices.Equal(a.Env, []string{"A=b"}) {
		t.Fatalf("%+v %v", a, err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, StopSignal} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	err = cmd.Wait()
	text, _ := os.ReadFile(file)
	if err != nil || string(text) != "\"env\":\"A\":\"\"job_id\":7\"\nover\n" {
		t.Errorf("%v %q", err, text)
	}
}

// TestDeafHelper: one that does not end with its input is killed; one that ends by itself is the keeper's end.
func TestDeafHelper(t *testing.T) {
	cmd, _ := keep(t, `echo '{"env":{}}'; while :; do sleep 1; done`)
	begin := time.Now()
	if err := cmd.Process.Signal(StopSignal); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || time.Since(begin) > Going+5*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	cmd, _ = keep(t, `echo '{"env":{}}'; exit 7`)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%s", cmd.ProcessState)
	}
}

// TestHelpersThatFail: each way to fail is a sentence, in time.
func TestHelpersThatFail(t *testing.T) {
	for script, want := range map[string]string{
		"exit 3":                               "ended without an answer (exit status 3)",
		"echo oh dear >&2; exit 3":             "it wrote: oh dear",
		"sleep 1000":                           "did not answer within 1 s",
		"exec >&-; sleep 1000":                 "closed its output without an answer",
		"yes | tr -d '\\n'":                    "more than 65536 bytes",
		"echo hello":                           "not the JSON",
		`echo '{"error":"no server"}'`:         "it says: no server",
		`echo '{"env":{"SLURM_JOB_ID":"1"}}'`:  "only gnoded sets",
		`echo '{"env":{"TAKEN":"1"}}'`:         "only gnoded sets",
		`echo '{"env":{"A B":"1"}}'`:           "no name of a variable",
		`printf '%s\n' '{"env":{"A":"x\ny"}}'`: "no line of up to",
		`echo '{"envs":{}}'`:                   "unknown field",
		`echo '{}'`:                            "neither env nor error nor refuse",
		`echo '{"env":{}} {}'`:                 "more than one",
		"cd /; exec /bin/nothing":              "ended without an answer",
		`printf '{"env":{"A":"'; yes x | head -3000 | tr -d '\n'; printf '%3000s"}}\n'`: "no line of up to",
	} {
		cmd, w := keep(t, script)
		a, err := w.read([]string{"TAKEN"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %+v %v; want %s", script, a, err, want)
		}
		_ = cmd.Process.Signal(StopSignal)
		_ = cmd.Wait() // it has answered, or ends now
	}
	_, w := keep(t, `printf '%s\n' '{"refuse":"not you\nor me"}'; cat`)
	if a, err := w.read(nil); err != nil || strings.Contains(a.Refuse, "\n") || !strings.HasPrefix(a.Refuse, "not you") {
		t.Errorf("%+v %v", a, err)
	}
}

// TestStore: an answer is there after a restart, and half written files go.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	one, two := Attempt{1, 1}, Attempt{2, 3}
	for _, key := range []Attempt{one, two} {
		if err := s.keep(key, &Helper{Step: -5000, Env: []string{"A=b"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "9.9.new"), bytes.Repeat([]byte("x"), 9), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(func(key Attempt) bool { return key == two }); err != nil {
		t.Fatal(err)
	}
	_, was := s.Env(one)
	env, is := s.Env(two)
	left, _ := os.ReadDir(dir)
	if was || !is || !slices.Equal(env, []string{"A=b"}) || len(left) != 1 {
		t.Errorf("%v %v %v %v", was, is, env, left)
	}
	var sent []bool
	signal := func(step int32, kill bool) bool { sent = append(sent, kill); return true }
	begin := time.Now()
	for i, at := range []time.Duration{0, time.Millisecond, Going + 2*time.Second} {
		if there := s.Stop(two, begin.Add(at), signal); there != (i < 2) {
			t.Errorf("after %s: %v", at, there)
		}
	}
	if !slices.Equal(sent, []bool{false, true}) || s.Stop(two, begin, signal) {
		t.Errorf("%v", sent)
	}
}
