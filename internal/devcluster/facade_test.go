package devcluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
	"gbatch/internal/proto"
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
		{"/gpus", "index:1 memory_free_mb"},
		{"/gpus", "status:busy task_id:" + id},
		{"/gpus", "status:idle task_id:<nil>"},
		{"/quota", "online:map[available:2 limit:4 quota:1 used:2] total_gpus:4"},
		{"/queue-status", "scheduler_running:true"},
		{"/queue-status", "user_queued_count:1"},
		{"/queue/position", "tasks:["},
		{"/queue/position/" + id, "position:<nil>"},
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
	// A GPU that a task holds while it is out of service counts as held, on the page too.
	w.ok("POST", "/slurm/v0.0.44/node/n1", `{"gres":"gpu:0","state":["DRAIN"],"reason":"loose"}`)
	for _, path := range []string{"/pools", "/queue-status"} {
		if text := fmt.Sprint(w.ok("GET", "/api/v1"+path, "")); !strings.Contains(text,
			"allocated_capacity:2 available_capacity:2") {
			t.Errorf("%s with a GPU that is held and out of service: %s", path, text)
		}
	}
	if _, _, text := w.do("GET", "/gpus", ""); !strings.Contains(text, "<dt>Held by jobs</dt><dd>2</dd>") ||
		!strings.Contains(text, "<dt>Out of service, or kept</dt><dd>1</dd>") {
		t.Errorf("the page of GPUs with one that is held and out of service: %s", text)
	}
	w.ok("POST", "/slurm/v0.0.44/node/n1", `{"gres":"gpu:0","state":["RESUME"]}`)
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
		{"GET", "/tasks/task-99999", "", 404, "task-99999"},
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
				!strings.Contains(path, "/history/") && !strings.HasSuffix(path, "/events") && !slices.Contains(ofMoney, path) {
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
		{[]string{"python3", "python3", "../../etc/examples/api.py", "unix://" + socket, "sh", "-c",
			`test "$1" = "a  b"`, "sh", "a  b"}, " success\n"},
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

// TestFacadeExamples: each operation of the specification, which needs no token, has an example; it runs as it is
// written, and the answer beside it is of the described form. Tasks know their places. Where QOS are enforced a task is
// submitted without the one that its account may not use.
func TestFacadeExamples(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not here")
	}
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 1, Gres: "gpu:a100:4",
		Conf: "Price=gres/gpu=2.0\nAccountingStorageEnforce=associations,limits,qos"})
	w := newWeb(t, c, "ctl1")
	for _, args := range [][]string{{"add", "account", "physics"}, {"add", "user", "root", "account=physics"},
		{"modify", "user", "root", "set", "defaultaccount=physics"}} {
		cmd := exec.Command(filepath.Join(devcluster.Commands(t), "gacctmgr"), append([]string{"-i"}, args...)...)
		cmd.Env = append(os.Environ(), "GBATCH_CONF="+c.Conf)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gacctmgr %v: %v: %s", args, err, out)
		}
	}
	w.ok("POST", "/slurm/v0.0.44/node/n1", `{"state":["DRAIN"],"reason":"tasks wait"}`)
	var token proto.TokenReply
	if err := c.Client().Call(proto.KindToken, &proto.TokenRequest{}, &token); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get("http://" + c.HTTPAddr["ctl1"] + "/api/v1/openapi")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("without a token: %d, %v: %s", answer.StatusCode, err, text)
	}
	form := &spec{}
	var said struct {
		Paths map[string]map[string]struct {
			Samples   []struct{ Source string } `json:"x-codeSamples"`
			Responses map[string]struct {
				Content map[string]struct {
					Schema  map[string]any
					Example any
				}
			}
		}
	}
	if err := errors.Join(json.Unmarshal(text, form), json.Unmarshal(text, &said)); err != nil {
		t.Fatal(err)
	}
	run := func(path, method string) {
		t.Helper()
		op := said.Paths["/api/v1"+path][method]
		delete(said.Paths["/api/v1"+path], method)
		for _, r := range op.Responses {
			for _, body := range r.Content {
				if bad := map[string]bool{}; body.Example != nil {
					if form.check(body.Example, body.Schema, path, bad); len(bad) > 0 {
						t.Errorf("the example of an answer of %s %s: %v", method, path, bad)
					}
				}
			}
		}
		if len(op.Samples) != 1 {
			t.Errorf("%s %s has %d examples", method, path, len(op.Samples))
			return
		}
		script, stream := op.Samples[0].Source, strings.Contains(op.Samples[0].Source, " -N")
		if stream {
			script = "timeout 1 " + script
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Env = append(os.Environ(), "URL=http://"+c.HTTPAddr["ctl1"], "SLURM_JWT="+token.Token)
		out, err := cmd.CombinedOutput()
		if err != nil && !stream || stream && !strings.Contains(string(out), `"kind":"task_submitted"`) {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
		if strings.Contains(script, "-X POST") && strings.HasSuffix(path, "/tasks") &&
			!strings.Contains(string(out), "modify user root where account=physics set qos+=high") {
			t.Errorf("nothing is said of a QOS that was not used: %s", out)
		}
	}
	run("/tasks", "post")
	c.Wait("the task has a place", func() error {
		if x := w.ok("GET", "/api/v1/tasks/1", ""); x["position"] != 1.0 {
			return fmt.Errorf("%v", x)
		}
		return nil
	})
	w.ok("POST", "/slurm/v0.0.44/job/submit", `{"job":{"script":"#!/bin/sh\n","environment":["A=b"],"name":"second"}}`)
	c.Wait("two tasks have places", func() error {
		got := fmt.Sprint(w.ok("GET", "/api/v1/queue/position", ""))
		if !strings.Contains(got, "total:2") || !strings.Contains(got, "position:2 rank:1") {
			return errors.New(got)
		}
		return nil
	})
	for path, want := range map[string]string{"/queue/position?limit=1": "position:1 rank:0",
		"/queue/position/task-2": "queues:[map[ahead:1 partition:main position:2 queued:2]] rank:1",
		"/queue/position/1":      "position:1 ", "/queue/position?partition=main&limit=2": "total:2"} {
		if got := fmt.Sprint(w.ok("GET", "/api/v1"+path, "")); !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %s", path, got, want)
		}
	}
	low := `{"priority":"low","command":"true",` + quick + `}`
	status, _, got := w.do("POST", "/api/v1/tasks", low)
	if status != http.StatusCreated || !strings.Contains(got, "qos+=low") {
		t.Errorf("a task of low priority: %d %s", status, got)
	}
	if got := fmt.Sprint(w.ok("GET", "/api/v1/tasks/3", "")); !strings.Contains(got, "priority:low") {
		t.Errorf("a task of low priority: %s", got)
	}
	run("/experiments/{id}/queue", "post")
	run("/tasks/{id}", "get")
	run("/queue/position/{id}", "get")
	run("/tasks/{id}", "delete")
	for path, ops := range said.Paths {
		for method := range ops {
			run(strings.TrimPrefix(path, "/api/v1"), method)
		}
	}
}
