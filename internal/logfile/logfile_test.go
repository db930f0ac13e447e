package logfile

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReopen: after a rename the log goes on in a new file of the old name, and nothing is lost.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.log")
	l, err := Open(path, io.Discard, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	log := l.Logger()
	log.Info("first")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	log.Info("second")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	log.Info("third")
	log.Debug("hidden")
	l.SetLevel("debug")
	log.Debug("shown")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log.Info("lost")
	for file, want := range map[string]string{path + ".1": "first second", path: "third shown"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			_, msg, _ := strings.Cut(line, "msg=")
			got = append(got, strings.TrimSpace(msg))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %q", filepath.Base(file), got, want)
		}
	}
}

func TestLevels(t *testing.T) {
	for text, want := range map[string]string{"0": "quiet", "3": "info", "INFO": "info", "debug1": "debug", "9": "debug5",
		"10": "", "loud": ""} {
		if got, err := LevelName(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestLevelsOfNames: what each of Slurm's levels lets through.
func TestLevelsOfNames(t *testing.T) {
	for level, want := range map[string]slog.Level{
		"quiet": slog.LevelError + 100, "fatal": slog.LevelError, "error": slog.LevelError, "info": slog.LevelInfo,
		"verbose": slog.LevelDebug, "debug": slog.LevelDebug, "debug5": slog.LevelDebug,
	} {
		l, err := Open("", io.Discard, level, "text")
		if err != nil {
			t.Fatal(err)
		}
		if log := l.Logger(); log.Enabled(t.Context(), want-1) || !log.Enabled(t.Context(), want) {
			t.Errorf("%s", level)
		}
	}
}
