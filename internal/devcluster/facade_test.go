package devcluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// quick keeps a task from asking a login shell for its variables, which takes seconds on some hosts.
const quick = `"environment":{"PATH":"/usr/bin:/bin"}`

// ofMoney are the paths that TestFacadeMoney holds against the specification.
var ofMoney = []string{"/api/v1/balance", "/api/v1/usage", "/api/v1/invoices"}

// TestFacadeMoney: balances, costs and invoices are those of greport --json, and are for those who see them there.
func TestFacadeMoney(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 1, Gres: "gpu:a100:4",
		Conf: "Price=gres/gpu=2.0\nPriceMinimumTime=60\nPrivateData=usage\nAccountingStorageEnforce=associations"})
	w := newWeb(t, c, "ctl1")
	_, _, text := w.do("GET", "/api/v1/openapi", "")
	mine := &spec{}
	if err := json.Unmarshal([]byte(text), mine); err != nil {
		t.Fatal(err)
	}
	w.specs, w.held = map[string][]*spec{"v1": {mine}}, map[string]bool{}
	run := func(name string, args ...string) map[string]any {
		t.Helper()
		cmd := exec.Command(filepath.Join(devcluster.Commands(t), name), args...)
		cmd.Env = append(os.Environ(), "GBATCH_CONF="+c.Conf)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		var answer map[string]any
		_ = json.Unmarshal(out, &answer) // most print no JSON
		return answer
	}
	run("gacctmgr", "-i", "add", "account", "physics")
	run("gacctmgr", "-i", "add", "user", "root", "account=physics")
	run("gacctmgr", "-i", "add", "credit", "account=physics", "amount=100")
	run("gsubmit", "--wait", "-A", "physics", "--gres=gpu:4", "-n1", "-o", "/dev/null", "--wrap", "true")
	const from, until = "2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z"
	c.Wait("the run is in accounting", func() error {
		x := w.ok("GET", "/api/v1/usage?start="+from, "")
		if list, _ := x["usage"].([]any); len(list) != 1 || x["running_jobs"] != 0.0 {
			return fmt.Errorf("%v", x)
		}
		return nil
	})
	run("gacctmgr", "-i", "add", "invoice", "account=physics", "start=2020-01-01", "end=now")
	begin, end := "start=2020-01-01T00:00:00", "end=2090-01-01T00:00:00"
	for _, x := range []struct {
		path, list, has string
		greport         []string
	}{
		{"/balance", "balances", "balance:99.8", []string{"balance"}},
		{"/balance?account=physics", "balances", "charged_micros:", []string{"balance", "accounts=physics"}},
		{"/usage?start=" + from + "&end=" + until, "usage", "gres/gpu:map[session_count:1", []string{"usage", begin, end}},
		{"/usage?current=true", "current_usage", "map[", []string{"usage", "current"}},
		{"/invoices", "invoices", "invoice_id:INV-1", []string{"invoice", "issued"}},
		{"/invoices?number=1", "invoices", "generated_by:root", []string{"invoice", "number=1"}},
	} {
		got, want := w.ok("GET", "/api/v1"+x.path, ""), run("greport", append([]string{"--json"}, x.greport...)...)
		if g, w := fmt.Sprint(got[x.list]), fmt.Sprint(want[x.list]); g != w || !strings.Contains(g, x.has) {
			t.Errorf("%s: %s\ngreport %v: %s; want %q", x.path, g, x.greport, w, x.has)
		}
	}
	draft := fmt.Sprint(w.ok("GET", "/api/v1/invoices?draft=true&start="+from, ""))
	if !strings.Contains(draft, "invoice_id:draft") {
		t.Error(draft)
	}
	for path, says := range map[string]string{"/balance?colour=red": "no such parameter", "/usage?start=x": "give a time",
		"/usage?start=5&end=5": "ends before it begins", "/usage?current=perhaps": "true or false",
		"/invoices?number=x": "number=x", "/invoices?number=99": "no invoice 99",
		"/invoices?draft=1&number=1": "without draft"} {
		status, _, text := w.do("GET", "/api/v1"+path, "")
		if status != http.StatusBadRequest && status != http.StatusNotFound || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	// Root speaks for a user who has nothing to do with the account.
	for _, path := range []string{"/balance", "/usage?start=" + from, "/usage?current=1", "/invoices",
		"/invoices?draft=1"} {
		_, answer, text := w.do("GET", "/api/v1"+path, "", "X-SLURM-USER-NAME", "nobody")
		if answer == nil || strings.Contains(text, "physics") {
			t.Errorf("%s as nobody: %s", path, text)
		}
	}
	for _, path := range ofMoney {
		if !w.held["get "+path] {
			t.Errorf("no answer of %s was held against the specification", path)
		}
	}
}

// TestFacade: tasks, GPUs, quotas, the queue and pools have the shapes that clients expect, what is wrong is said, and
// the examples of curl and Python run as they are.
func TestFacade(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 1, NoDbd: true, Gres: "gpu:a100:4"})
	w := newWeb(t, c, "ctl1")
	_, _, text := w.do("GET", "/api/v1/openapi", "")
	mine := &spec{}
	if err := json.Unmarshal([]byte(text), mine); err != nil {
		t.Fatal(err)
	}
	w.specs, w.held = map[string][]*spec{"v1": {mine}}, map[string]bool{}
	post := func(path, body string, want int) map[string]any {
		t.Helper()
		status, answer, text := w.do("POST", path, body)
		if status != want {
			t.Fatalf("POST %s %s: %d %s", path, body, status, text)
		}
		return answer
	}
	first := post("/api/v1/tasks", `{"priority":"high","gpu_count":2,"command":"sleep 300",`+quick+`}`, http.StatusCreated)
	id, _ := first["task_id"].(string)
	if first["status"] != "pending" || !strings.HasPrefix(id, "task-") || first["created_at"] == nil {
		t.Errorf("%v", first)
	}
	c.Wait("the task runs", func() error {
		if x := w.ok("GET", "/api/v1/tasks/"+id, ""); x["status"] != "running" {
			return fmt.Errorf("%v", x)
		}
		return nil
	})
	second := post("/api/v1/tasks", `{"priority":"low","gpu_count":4,"command":"true",`+quick+`}`, http.StatusCreated)
	held := post("/api/v1/tasks", `{"gpu_count":1,"command":"true","options":["--hold"],`+quick+`}`, http.StatusCreated)
	for _, x := range []struct{ path, want string }{
		{"/tasks/" + id, "allocated_gpus:[GPU-0 GPU-1]"},
		{"/tasks/" + id, "gpu_count:2"},
		{"/tasks/" + id, "likely_start_earliest:<nil>"},
		{"/tasks/" + id, "priority:high"},
		{"/tasks/" + fmt.Sprint(second["task_id"]), "priority:low"},
		{"/tasks?status=pending&limit=1", "total:2"},
		{"/gpus", "index:1 memory_total_mb"},
		{"/gpus", "status:busy task_id:" + id},
		{"/gpus", "status:idle task_id:<nil>"},
		{"/quota", "online:map[available:2 limit:4 quota:1 used:2] total_gpus:4"},
		{"/queue-status", "scheduler_running:true"},
		{"/queue-status", "user_queued_count:1"},
		{"/queue-status", "0,1:map[count:1"},
		{"/queue-status", "auto:map[count:1"},
		{"/pools", "allocated_capacity:2 available_capacity:2"},
		{"/pools", "total_capacity:4 type:gpu utilization:0.5"},
		{"/experiments/queue-status/", "total_capacity:4"},
		{"/openapi.json", "/api/v1/queue-status"},
	} {
		if text := fmt.Sprint(w.ok("GET", "/api/v1"+x.path, "")); !strings.Contains(text, x.want) {
			t.Errorf("%s has no %q:\n%s", x.path, x.want, text)
		}
	}
	number := strings.TrimPrefix(fmt.Sprint(held["task_id"]), "task-")
	said := post("/api/v1/experiments/"+number+"/queue/", "", http.StatusOK)
	if text := fmt.Sprint(said); text != "map[experiment:map[id:"+number+
		" status:queued] message:实验已加入队列 success:true]" {
		t.Error(text)
	}
	c.Wait("the held task has ended", func() error {
		if x := w.ok("GET", "/api/v1/tasks/"+number, ""); x["status"] != "success" {
			return fmt.Errorf("%v", x)
		}
		return nil
	})
	for _, x := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/tasks", `{"priority":"urgent","gpu_count":1,"command":"true"}`, 400, "priority is"},
		{"POST", "/tasks", `{"priority":"low","gpu_count":-1,"command":"true"}`, 400, "gpu_count"},
		{"POST", "/tasks", `{"priority":"low","gpu_count":1}`, 400, "no command"},
		{"POST", "/tasks", `{"command":"true","colour":"red"}`, 400, "colour"},
		{"POST", "/tasks", `{"command":"true","options":["--uid=1"]}`, 400, "--uid"},
		{"POST", "/tasks", `{`, 400, "can't be read"},
		{"GET", "/tasks/task-99999", "", 404, "nvalid job id"},
		{"GET", "/tasks/x", "", 404, "no task"},
		{"GET", "/tasks?status=done", "", 400, "status=done"},
		{"DELETE", "/tasks/" + number, "", 409, ""},
		{"PUT", "/tasks", "", 405, "GET and POST"},
		{"GET", "/nothing", "", 404, "openapi.json"},
	} {
		status, answer, text := w.do(x.method, "/api/v1"+x.path, x.body)
		if status != x.status || answer["success"] != false || !strings.Contains(text, x.says) {
			t.Errorf("%s %s %s: %d %s; want %d and %q", x.method, x.path, x.body, status, text, x.status, x.says)
		}
	}
	if answer := w.ok("DELETE", "/api/v1/tasks/"+id, ""); answer["success"] != true {
		t.Errorf("%v", answer)
	}
	for path, ops := range mine.Paths {
		for method := range ops {
			if at := method + " " + path; !w.held[at] && !strings.Contains(path, "openapi") &&
				!strings.Contains(path, "/history/") && !slices.Contains(ofMoney, path) {
				t.Errorf("no answer of %s was held against the specification", at)
			}
		}
	}
	socket := filepath.Join(c.Dir, "run", "http-ctl1")
	for _, x := range []struct {
		words []string
		want  string
	}{
		{[]string{"curl", "sh", "../../etc/examples/api.sh"}, `"kind":"task_submitted"`},
		{[]string{"python3", "python3", "../../etc/examples/api.py", "unix://" + socket, "hostname"}, " success\n"},
	} {
		if _, err := exec.LookPath(x.words[0]); errors.Is(err, exec.ErrNotFound) {
			t.Logf("%s is not here: its example was not run", x.words[0])
			continue
		}
		cmd := exec.CommandContext(t.Context(), x.words[1], x.words[2:]...)
		cmd.Env = append(os.Environ(), "SOCKET="+socket, "URL=http://gbatch")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), x.want) {
			t.Errorf("%v: %v\n%s", x.words, err, out)
		}
	}
}
