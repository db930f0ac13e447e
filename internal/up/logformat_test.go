package up

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/model"
)

// TestLogFormat: with LogFormat=json every line of all daemons' logs, gshim's too, is an object, and a job's life is in
// them as events.
func TestLogFormat(t *testing.T) {
	site := filepath.Join(t.TempDir(), "gbatch.conf")
	text := "ClusterName=lines\nSlurmctldHost=ctl1\nLogFormat=json\nNodeName=n1 CPUs=2 RealMemory=1000\n" +
		"PartitionName=main Nodes=ALL Default=YES\n"
	if err := os.WriteFile(site, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := mustUp(t, Options{Dir: filepath.Join(t.TempDir(), "lines"), Conf: site})
	id := submit(t, c, "exit 0\n", nil)
	untilState(t, c, id, model.Completed)
	until(t, "the end is in the controller's log", func() bool {
		b, err := os.ReadFile(filepath.Join(c.Dir, "log", "ctld-ctl1.log"))
		return err == nil && bytes.Contains(b, []byte("task_finished"))
	})
	logs, err := filepath.Glob(filepath.Join(c.Dir, "log", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	logs = append(logs, filepath.Join(c.Dir, "state", "node-n1", "gshim", "shim.log"))
	seen := map[string]bool{}
	for _, file := range logs {
		b, err := os.ReadFile(file)
		if err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", file, len(b), err)
		}
		for line := range bytes.Lines(b) {
			var l struct{ Time, Level, Msg string }
			if err := json.Unmarshal(line, &l); err != nil || l.Time == "" || l.Level == "" || l.Msg == "" {
				t.Errorf("%s has a line that is no object of a log: %s%v", filepath.Base(file), line, err)
			}
			seen[l.Msg] = true
		}
	}
	for _, event := range []string{"task_submitted", "task_scheduled", "task_finished"} {
		if !seen[event] {
			t.Errorf("no line has the event %s", event)
		}
	}
}
