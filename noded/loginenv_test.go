package noded

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
)

// TestLoginEnvironment: variables of start files arrive, whatever the files print; a shell that hangs, fails or is
// missing is abandoned in time; submitted variables override.
func TestLoginEnvironment(t *testing.T) {
	home := t.TempDir()
	profile := func(text string) {
		if err := os.WriteFile(filepath.Join(home, ".profile"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sp := &model.Spec{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), User: "me"}
	who := jobenv.Account{Name: "me", Home: home, Shell: "/bin/sh"}
	ask := func(w *loginWish, who jobenv.Account) (string, error) {
		env, err := askShell(t.Context(), sp, who, false, w)
		return strings.ReplaceAll(string(env), "\x00", "\n"), err
	}
	profile("echo Welcome\nexport SITE='a\nb'\n")
	env, err := ask(&loginWish{limit: 20 * time.Second}, who)
	if err != nil || !strings.Contains(env, "\nSITE=a\nb\n") || strings.Contains(env, "Welcome") {
		t.Errorf("login shell: %v\n%s", err, env)
	}
	if env, err = ask(&loginWish{limit: 20 * time.Second, plain: true}, who); err != nil || strings.Contains(env, "SITE") {
		t.Errorf("plain shell: %v\n%s", err, env)
	}
	profile("exit 3\n")
	if _, err = ask(&loginWish{limit: 20 * time.Second}, who); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a profile that fails: %v", err)
	}
	profile("sleep 600\n")
	if _, err = ask(&loginWish{limit: 200 * time.Millisecond}, who); err == nil ||
		!strings.Contains(err.Error(), "start files hang") {
		t.Errorf("a profile that hangs: %v", err)
	}
	if _, err = ask(&loginWish{limit: time.Second}, jobenv.Account{Shell: "/no/such/shell"}); err == nil {
		t.Error("a shell that isn't there gave an environment")
	}

	// The outcome is kept: a hundred jobs of a user start one shell.
	profile("echo x >>" + filepath.Join(home, "runs") + "\n")
	var ls logins
	for range 5 {
		if _, err := ls.get(context.Background(), sp, who, false, &loginWish{limit: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if runs, _ := os.ReadFile(filepath.Join(home, "runs")); string(runs) != "x\n" {
		t.Errorf("5 jobs ran the start files as often as %q says", runs)
	}
}

func TestLoginWish(t *testing.T) {
	for text, want := range map[string]*loginWish{
		"A=1\x00":                          nil,
		"A=1\x00SLURM_GET_USER_ENV=1\x00":  {limit: loginDefault},
		"SLURM_GET_USER_ENV=20S\x00B=2":    {limit: 20 * time.Second, plain: true},
		"SLURM_GET_USER_ENV=999999L\x00":   {limit: loginMost},
		"SLURM_GET_USER_ENV=S\x00":         {limit: loginDefault, plain: true},
		"SLURM_GET_USER_ENV=nonsense\x00C": {limit: loginDefault},
	} {
		got := wishOf([]byte(text))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	got := withLogin([]byte("A=1\x00PATH=/x\x00"), []byte("PATH=/y\x00SHLVL=1\x00N=2\x00junk\x00=x\x00"))
	if want := []byte("A=1\x00PATH=/x\x00N=2\x00"); !bytes.Equal(got, want) {
		t.Errorf("merged: %q, want %q", got, want)
	}
}
