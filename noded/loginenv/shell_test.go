package loginenv

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAsk: variables of start files arrive, whatever the files print; a shell that hangs, fails or is missing is
// abandoned in time.
func TestAsk(t *testing.T) {
	home := t.TempDir()
	profile := func(text string) {
		if err := os.WriteFile(filepath.Join(home, ".profile"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(limit time.Duration, plain bool, shell string) (string, error) {
		env, err := ask(&Order{Limit: limit, Plain: plain, Name: "me", Home: home, Shell: shell})
		return strings.ReplaceAll(string(env), "\x00", "\n"), err
	}
	profile("echo Welcome\nexport SITE='a\nb'\n")
	env, err := ask(20*time.Second, false, "/bin/sh")
	if err != nil || !strings.Contains(env, "\nSITE=a\nb\n") || strings.Contains(env, "Welcome") {
		t.Errorf("login shell: %v\n%s", err, env)
	}
	if env, err = ask(20*time.Second, true, ""); err != nil || strings.Contains(env, "SITE") {
		t.Errorf("plain shell: %v\n%s", err, env)
	}
	profile("exit 3\n")
	if _, err = ask(20*time.Second, false, ""); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a profile that fails: %v", err)
	}
	profile("sleep 600\n")
	if _, err = ask(200*time.Millisecond, false, ""); err == nil || !strings.Contains(err.Error(), "start files hang") {
		t.Errorf("a profile that hangs: %v", err)
	}
	if _, err = ask(time.Second, false, "/no/such/shell"); err == nil {
		t.Error("a shell that isn't there gave an environment")
	}
}

func TestMerge(t *testing.T) {
	o := &Order{Not: []string{"SLURM_JOB_ID"}, Over: []string{"PATH"}}
	got := merge([]string{"A=1", "PATH=/x", "HOME=/h"},
		[]byte("A=2\x00PATH=/y\x00SHLVL=1\x00N=2\x00junk\x00=x\x00SLURM_JOB_ID=9\x00HOME=/z\x00"), o)
	if want := []string{"A=1", "PATH=/y", "HOME=/h", "N=2"}; !slices.Equal(got, want) {
		t.Errorf("merged: %q, want %q", got, want)
	}
}

func TestOrder(t *testing.T) {
	o := Order{Limit: 3 * time.Second, Plain: true, Name: "me", Home: "/h", Not: []string{"A", "B"},
		Space: unix.Rlimit{Cur: 5, Max: unix.RLIM_INFINITY}}
	argv := o.Argv("/gshim", []string{"/script", "x"})
	got, script, err := parse(argv[2:])
	if err != nil || got.Limit != o.Limit || !got.Plain || got.Name != "me" || !slices.Equal(got.Not, o.Not) ||
		len(got.Over) != 0 || got.Space != o.Space || !slices.Equal(script, []string{"/script", "x"}) {
		t.Errorf("%+v %q %v", got, script, err)
	}
	for n := range fields + 1 {
		if _, _, err := parse(argv[2 : 2+n]); err == nil {
			t.Errorf("%d arguments are enough", n)
		}
	}
}

// TestEndRest: what start files leave running ends, in whatever session it is.
func TestEndRest(t *testing.T) {
	if os.Getenv("LOGINENV_HOME") != "" { // the process itself
		os.Exit(Main((&Order{Limit: time.Minute, Home: os.Getenv("LOGINENV_HOME"), Space: NoSpace()}).
			Argv("", []string{"/bin/true"})[2:], os.Stderr))
	}
	home := t.TempDir()
	note := filepath.Join(home, "pid")
	if err := os.WriteFile(filepath.Join(home, ".profile"),
		[]byte("setsid sh -c 'echo $$ > "+note+"; exec sleep 600' </dev/null >/dev/null 2>&1 &\n"+
			"until [ -s "+note+" ]; do :; done\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(self, []string{self, "-test.run=TestEndRest$"}, &os.ProcAttr{
		Env: append(os.Environ(), "LOGINENV_HOME="+home), Files: []*os.File{nil, os.Stderr, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err != nil || !st.Success() {
		t.Fatal(st, err)
	}
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("the sleeper of the start file, %d, lives: %v", pid, err)
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}
