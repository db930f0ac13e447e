package devcluster_test

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// web is a client of a controller's HTTP socket.
type web struct {
	t     *testing.T
	c     http.Client
	specs map[string][]*spec // by version, which JSON answers are held against
	held  map[string]bool    // operations that an answer was held against, by path and method
}

func newWeb(t *testing.T, c *devcluster.Cluster, name string) *web {
	path := filepath.Join(c.Dir, "run", "http-"+name)
	w := &web{t: t}
	w.c.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(w.c.CloseIdleConnections)
	return w
}

// do makes a request; headers are names and values in turn.
func (w *web) do(method, path, body string, headers ...string) (status int, answer map[string]any, text string) {
	w.t.Helper()
	r, err := http.NewRequest(method, "http://gbatch"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	got, err := w.c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(got.Body)
	if err := got.Body.Close(); err != nil {
		w.t.Error(err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if json.Unmarshal(b, &answer) != nil {
		answer = nil
	}
	if answer != nil {
		w.hold(method, r.URL.Path, got.StatusCode, answer)
	}
	return got.StatusCode, answer, string(b)
}

// ok is do of what must work.
func (w *web) ok(method, path, body string) map[string]any {
	w.t.Helper()
	status, answer, text := w.do(method, path, body)
	if errs, _ := answer["errors"].([]any); status != http.StatusOK || answer == nil || len(errs) > 0 {
		w.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return answer
}

// spec is an OpenAPI document.
type spec struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema map[string]any }
		}
	}
	Components struct{ Schemas map[string]map[string]any }
}

// own are members beyond Slurm's specification: those of --json, which programs rely on.
var own = []string{"statistics.gbatch", "nodes.allocation[].gres", "partition.default", "partition.hidden", "[].node",
	"[].task", "[].percent", "qos[].gbatch", "reservations[].gbatch",
	"core_specializations[].cpus", "core_specializations[].gres", "core_specializations[].memory"}

// check holds a value against a schema.
func (s *spec) check(v any, schema map[string]any, path string, bad map[string]bool) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = s.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
	wrong := func(format string, a ...any) { bad[path+": "+fmt.Sprintf(format, a...)] = true }
	if nullable, _ := schema["nullable"].(bool); nullable && v == nil {
		return
	}
	switch kind, _ := schema["type"].(string); kind {
	case "object":
		m, ok := v.(map[string]any)
		if v == nil && strings.HasSuffix(path, "job_resources") {
			return // of a pending job it is null, against the specification
		}
		if !ok {
			wrong("%T is no object", v)
			return
		}
		props, closed := schema["properties"].(map[string]any)
		if each, is := schema["additionalProperties"].(map[string]any); is {
			for name, e := range m {
				s.check(e, each, path+"."+name, bad)
			}
			return
		}
		for name, e := range m {
			p, known := props[name].(map[string]any)
			switch {
			case known:
				s.check(e, p, path+"."+name, bad)
			case closed && !slices.ContainsFunc(own, func(o string) bool { return strings.HasSuffix(path+"."+name, o) }):
				wrong("has %s, which the specification does not have", name)
			}
		}
		required, _ := schema["required"].([]any)
		for _, r := range required {
			name, _ := r.(string)
			p, _ := props[name].(map[string]any)
			if _, has := m[name]; strings.Contains(name, "/") || has && p["nullable"] == true {
				continue // nodes/count is of a nested object
			}
			if m[name] == nil {
				wrong("lacks %s", name)
			}
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			wrong("%T is no list", v)
			return
		}
		items, _ := schema["items"].(map[string]any)
		for _, e := range list {
			s.check(e, items, path+"[]", bad)
		}
	case "string":
		text, ok := v.(string)
		if enum, _ := schema["enum"].([]any); !ok || enum != nil && !slices.Contains(enum, any(text)) {
			wrong("%v is no text, or none of its words", v)
		}
	case "integer":
		if n, ok := v.(float64); !ok || n != float64(int64(n)) {
			wrong("%v is no integer", v)
		}
	case "number":
		if _, ok := v.(float64); !ok {
			wrong("%v is no number", v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			wrong("%v is neither true nor false", v)
		}
	}
}

// published reads Slurm's specification of a version; nil where the folder of them is not there.
func published(t *testing.T, ver string) *spec {
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "openapi", "slurm-"+ver+".json.gz"))
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := &spec{}
	if err := json.NewDecoder(z).Decode(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// hold holds an answer of an operation, be it an error's, against the specifications of its version.
func (w *web) hold(method, path string, status int, answer map[string]any) {
	w.t.Helper()
	words := strings.Split(strings.Trim(path, "/"), "/")
	if len(words) < 3 {
		return
	}
	for i, s := range w.specs[words[1]] {
		at := ""
		for pattern := range s.Paths {
			if matches(pattern, words) && (at == "" || !strings.Contains(pattern, "{")) {
				at = pattern
			}
		}
		op, ok := s.Paths[at][strings.ToLower(method)]
		if !ok {
			if status != http.StatusMethodNotAllowed && (at != "" || i > 0) {
				w.t.Errorf("%s %s: specification %d has no such operation", method, path, i)
			}
			continue
		}
		w.held[strings.ToLower(method)+" "+at] = true
		bad := map[string]bool{}
		reply, ok := op.Responses[fmt.Sprint(status)]
		if words[1] != "v1" { // Slurm's errors have the form of answers
			reply = op.Responses["200"]
		} else if !ok {
			reply = op.Responses["default"]
		}
		for _, content := range reply.Content {
			s.check(answer, content.Schema, "", bad)
		}
		for b := range bad {
			w.t.Errorf("%s %s, %s specification: %s", method, path, []string{"the served", "Slurm's"}[i], b)
		}
	}
}

// matches reports whether a path, in words, is one of a pattern such as /slurm/v0.0.44/job/{job_id}.
func matches(pattern string, words []string) bool {
	want := strings.Split(strings.Trim(pattern, "/"), "/")
	return len(want) == len(words) && !slices.ContainsFunc(want, func(x string) bool {
		i := slices.Index(want, x)
		return x != words[i] && !strings.HasPrefix(x, "{")
	})
}

// holdAll gets the specifications.
func (w *web) holdAll() {
	w.t.Helper()
	_, _, text := w.do("GET", "/openapi/v3", "")
	mine := &spec{}
	if err := json.Unmarshal([]byte(text), mine); err != nil {
		w.t.Fatal(err)
	}
	w.specs, w.held = map[string][]*spec{}, map[string]bool{}
	for _, ver := range []string{"v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40"} {
		w.specs[ver] = []*spec{mine}
		if theirs := published(w.t, ver); theirs != nil {
			w.specs[ver] = append(w.specs[ver], theirs)
		} else {
			w.t.Logf("Slurm's own specification of %s is not here; only the served one is held against", ver)
		}
	}
}

const restJob = `{"script":"#!/bin/sh\n%s\n","job":{"name":%q,"environment":["PATH=/bin:/usr/bin"],` +
	`"current_working_directory":"/tmp","standard_output":"/dev/null","time_limit":{"set":true,"number":10}%s}}`

// submit submits a job, and gives its number.
func (w *web) submit(name, script, more string) string {
	w.t.Helper()
	id, _ := w.ok("POST", "/slurm/v0.0.44/job/submit", fmt.Sprintf(restJob, script, name, more))["job_id"].(float64)
	if id == 0 {
		w.t.Fatal("no job_id")
	}
	return fmt.Sprint(int(id))
}

// until waits until a job's states are these.
func (w *web) until(c *devcluster.Cluster, job, states string) {
	w.t.Helper()
	c.Wait("job "+job+" is "+states, func() error {
		jobs, _ := w.ok("GET", "/slurm/v0.0.44/job/"+job, "")["jobs"].([]any)
		first, _ := jobs[0].(map[string]any)
		if got := fmt.Sprint(first["job_state"]); got != "["+states+"]" {
			return fmt.Errorf("%s %v", got, first["state_reason"])
		}
		return nil
	})
}

// TestREST: jobs, nodes, reservations and accounts are made, read, changed and removed over HTTP. Every answer of
// every operation, errors among them, holds against the specification that is served and, where it is there, against
// Slurm's own, in each version, with jobs in all states and forms.
func TestREST(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true,
		Conf: "PriorityType=priority/multifactor"})
	w := newWeb(t, c, "ctl1")
	w.holdAll()
	const forever = "sleep 300"
	running := w.submit("runs", forever, `,"cpus_per_task":1,"memory_per_node":{"set":true,"number":100}`)
	w.submit("held", forever, `,"hold":true`)
	w.submit("array", forever, `,"array":"1-3%1","dependency":"afterany:`+running+`"`)
	w.submit("waits", forever, `,"begin_time":{"set":true,"number":32503680000}`)
	w.ok("POST", "/slurm/v0.0.44/job/submit", `{"job":{"name":"outside","tasks":1,"flags":["EXTERNAL_JOB"]}}`)
	w.ok("POST", "/slurm/v0.0.44/job/allocate", `{"job":{"tasks":1}}`)
	het := w.ok("POST", "/slurm/v0.0.44/job/submit", `{"jobs":[{"script":"#!/bin/sh\nsleep 300\n","name":"het",`+
		`"environment":["A=b"],"tasks":1},{"tasks":1,"cpus_per_task":2}]}`)["job_id"]
	gone := w.submit("gone", forever, `,"hold":true`)
	w.ok("POST", "/slurm/v0.0.44/job/"+gone, `{"comment":"changed","time_limit":{"set":true,"number":5}}`)
	w.ok("DELETE", "/slurm/v0.0.44/job/"+gone, "")
	fails, ends := w.submit("fails", "exit 7", ""), w.submit("ends", "true", "")
	late, again := w.submit("late", forever, ""), w.submit("again", forever, `,"requeue":true`)
	w.until(c, late, "RUNNING")
	w.until(c, again, "RUNNING")
	for _, x := range []struct {
		job    string
		action proto.JobAction
		set    []model.KV
	}{{late, proto.ActUpdate, []model.KV{{Key: "TimeLimit", Value: "0:1"}}}, {again, proto.ActRequeueHold, nil}} {
		n, _ := strconv.Atoi(x.job)
		var reply proto.TargetsReply
		if err := c.Client().Call(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: x.action, Set: x.set,
			Targets: []model.JobRef{{Job: model.JobID(n), Task: model.NoTask}}}, &reply); err != nil {
			t.Fatal(err)
		}
	}
	w.ok("POST", "/slurm/v0.0.44/node/n2", `{"state":["DRAIN"],"reason":"a test"}`)
	w.ok("POST", "/slurm/v0.0.44/nodes/", `{"name":["n2"],"comment":"drained"}`)
	w.ok("POST", "/slurm/v0.0.44/new/node/",
		`{"node_conf":"NodeName=extra[1-2] CPUs=2 Features=\"slow,old\" State=FUTURE"}`)
	w.ok("DELETE", "/slurm/v0.0.44/node/extra2", "")
	resv := fmt.Sprintf(`{"name":"r1","start_time":{"set":true,"number":%d},`+
		`"duration":{"set":true,"number":60},"node_list":["n2"],"users":["root"],"flags":["IGNORE_JOBS"]}`,
		time.Now().Unix()+3600)
	w.ok("POST", "/slurm/v0.0.44/reservation", resv)
	w.ok("POST", "/slurm/v0.0.44/reservations/", `{"reservations":[`+resv+`]}`) // changes it
	w.accounts()
	w.until(c, running, "RUNNING")
	w.until(c, fails, "FAILED")
	w.until(c, ends, "COMPLETED")
	w.until(c, late, "TIMEOUT")
	w.until(c, again, "PENDING")
	w.until(c, gone, "CANCELLED")
	w.until(c, fmt.Sprint(het), "RUNNING")
	c.Wait("gdbd has the records", func() error {
		for _, job := range []string{"1", fails, late, gone} {
			status, answer, text := w.do("GET", "/slurmdb/v0.0.44/job/"+job, "")
			if jobs, _ := answer["jobs"].([]any); status != http.StatusOK || len(jobs) == 0 {
				return fmt.Errorf("%d %s", status, text)
			}
		}
		return nil
	})
	w.ok("POST", "/slurmdb/v0.0.44/job/"+running, `{"comment":{"administrator":"seen"}}`)
	w.ok("POST", "/slurmdb/v0.0.44/jobs/", `{"job_id_list":["`+running+`"],"job_rec":{"comment":{"administrator":"a"}}}`)
	names := strings.NewReplacer("{job_id}", running, "{node_name}", "n1", "{partition_name}", "main",
		"{reservation_name}", "r1", "{qos}", "fast", "{cluster_name}", "dev", "{account_name}", "physics", "{id}", "1",
		"{name}", "ann")
	for _, ver := range []string{"v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40"} {
		for path, methods := range w.specs[ver][0].Paths {
			if _, get := methods["get"]; !get || !strings.Contains(path, ver) {
				continue
			}
			at := names.Replace(path)
			if strings.HasSuffix(path, "/association/") {
				at += "?account=physics&user=ann"
			}
			w.ok("GET", at, "")
		}
	}
	w.ok("DELETE", "/slurm/v0.0.44/reservation/r1", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/association/?account=physics&user=ann", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/associations/?account=math&user=ann", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/user/ann", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/account/physics", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/qos/fast", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/cluster/elsewhere", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/wckey/1", "") // nothing is found, and that is no error
	w.wckeys()
	w.ok("DELETE", "/slurm/v0.0.44/jobs/", `{"user_name":"root"}`)
	w.forms()
	tagged(t, c, w)
	bad(t, w)
	elsewhere(t, w)
	w.allWrong()
}

// wckeys gives users wckeys, finds them and removes one.
func (w *web) wckeys() {
	w.t.Helper()
	w.ok("POST", "/slurmdb/v0.0.44/accounts_association/", `{"association_condition":{"accounts":["keyed"]},"account":{}}`)
	w.ok("POST", "/slurmdb/v0.0.44/users_association/", `{"association_condition":{"accounts":["keyed"],`+
		`"users":["kim"],"wckeys":["ml"]},"user":{"defaultwckey":"bio"}}`)
	w.ok("POST", "/slurmdb/v0.0.44/wckeys/", `{"wckeys":[{"name":"third","user":"kim","cluster":"dev"}]}`)
	w.ok("POST", "/slurmdb/v0.0.44/users/", `{"users":[{"name":"kim","default":{"wckey":"fourth"},`+
		`"wckeys":[{"name":"third","user":"kim","cluster":"dev"}]}]}`)
	user := fmt.Sprint(w.ok("GET", "/slurmdb/v0.0.44/user/kim", "")["users"])
	if !strings.Contains(user, "wckey:fourth") {
		w.t.Errorf("user kim has no default wckey fourth: %s", user)
	}
	list := func(query string) (names []string, ids []int) {
		w.t.Helper()
		keys, _ := w.ok("GET", "/slurmdb/v0.0.44/wckeys/?user=kim"+query, "")["wckeys"].([]any)
		for _, k := range keys {
			m, _ := k.(map[string]any)
			n, _ := m["id"].(float64)
			names, ids = append(names, fmt.Sprint(m["name"])), append(ids, int(n))
		}
		return names, ids
	}
	names, ids := list("")
	if got := strings.Join(names, ","); got != "bio,fourth,ml,third" {
		w.t.Fatalf("wckeys of kim: %s", got)
	}
	if only, _ := list("&only_defaults=true"); strings.Join(only, ",") != "fourth" {
		w.t.Errorf("default wckeys of kim: %s", only)
	}
	gone := w.ok("DELETE", fmt.Sprintf("/slurmdb/v0.0.44/wckey/%d", ids[0]), "")["deleted_wckeys"]
	if names, _ := list("&name=bio"); fmt.Sprint(gone) != "[bio]" || names != nil {
		w.t.Errorf("deleted %v, left %v", gone, names)
	}
}

// accounts makes accounts, users and QOS in each of the ways that there are.
func (w *web) accounts() {
	w.t.Helper()
	w.ok("POST", "/slurmdb/v0.0.44/accounts_association/", `{"association_condition":{"accounts":["physics"],`+
		`"clusters":["dev"],"association":{"grpjobs":{"set":true,"number":7},"grptres":[{"type":"cpu","count":9}]}},`+
		`"account":{"description":"atoms"}}`)
	w.ok("POST", "/slurmdb/v0.0.44/users_association/", `{"association_condition":{"accounts":["physics"],`+
		`"users":["ann"],"association":{"maxjobs":{"set":true,"number":3}}},"user":{}}`)
	w.ok("POST", "/slurmdb/v0.0.44/qos/", `{"qos":[{"name":"fast","priority":{"set":true,"number":5},`+
		`"flags":["DENY_LIMIT"]}]}`)
	w.ok("POST", "/slurmdb/v0.0.44/accounts/", `{"accounts":[{"name":"math","description":"sums","organization":"u",`+
		`"coordinators":[{"name":"ann"}]}]}`)
	w.ok("POST", "/slurmdb/v0.0.44/users/", `{"users":[{"name":"ann","administrator_level":["Operator"],`+
		`"associations":[{"account":"math","user":"ann","cluster":"dev"}]}]}`)
	w.ok("POST", "/slurmdb/v0.0.44/associations/", `{"associations":[{"account":"math","user":"ann","is_default":true,`+
		`"max":{"jobs":{"active":{"set":true,"number":4}}}}]}`)
	w.ok("POST", "/slurmdb/v0.0.44/clusters/", `{"clusters":[{"name":"dev"}]}`)
	ann := fmt.Sprint(w.ok("GET", "/slurmdb/v0.0.44/user/ann", "")["users"])
	for _, want := range []string{"account:math", "Operator", "account:physics"} {
		if !strings.Contains(strings.ReplaceAll(ann, "Administrator", ""), want) {
			w.t.Errorf("user ann has no %s: %s", want, ann)
		}
	}
	// what was read can be sent back
	all, _ := json.Marshal(w.ok("GET", "/slurmdb/v0.0.44/config", ""))
	w.ok("POST", "/slurmdb/v0.0.44/config", string(all))
	for _, list := range []string{"accounts", "users", "associations", "qos", "clusters", "wckeys"} {
		all, _ := json.Marshal(w.ok("GET", "/slurmdb/v0.0.44/"+list+"/", ""))
		w.ok("POST", "/slurmdb/v0.0.44/"+list+"/", string(all))
	}
}

// forms is about YAML and compressed answers.
func (w *web) forms() {
	w.t.Helper()
	status, _, text := w.do("POST", "/util/v0.0.44/hostnames", "hostlist: n[1-3]\n", "Content-Type", "application/x-yaml",
		"Accept", "application/yaml")
	if status != http.StatusOK || !strings.Contains(text, "hostnames:\n") || !strings.Contains(text, "- n3\n") {
		w.t.Errorf("%d %s", status, text)
	}
	if got := w.ok("POST", "/util/v0.0.44/hostlist", `{"hostnames":["n1","n2","n4"]}`)["hostlist"]; got != "n[1-2,4]" {
		w.t.Errorf("%v", got)
	}
	_, plain, _ := w.do("GET", "/slurm/v0.0.44/jobs/", "", "Accept-Encoding", "identity")
	for range 2 { // Go's client asks for gzip by itself
		if status, small, text := w.do("GET", "/slurm/v0.0.44/jobs/", ""); status != http.StatusOK || len(text) < 10000 ||
			len(small["jobs"].([]any)) != len(plain["jobs"].([]any)) {
			w.t.Errorf("%d %.200s", status, text)
		}
	}
}

// allWrong sends to each operation what it can't take: each answer has Slurm's form.
func (w *web) allWrong() {
	w.t.Helper()
	for _, ver := range []string{"v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40"} {
		for path, methods := range w.specs[ver][0].Paths {
			for method := range methods {
				if !strings.Contains(path, ver) {
					continue
				}
				at := path[:strings.IndexByte(path+"{", '{')] + "none"
				if !strings.Contains(path, "{") {
					at = path + "?update_time=x"
				}
				for _, body := range []string{"[", `{"job":{"name":7.5},"jobs":{},"name":[7],"users":7,"accounts":"x",` +
					`"association_condition":7,"associations":7,"qos":7,"clusters":"x","reservations":[7],"tres":[7],` +
					`"wckeys":[{"a":1}],` +
					`"hostlist":"n[","node_conf":"x","job_id_list":["x"]}`} {
					status, answer, text := w.do(strings.ToUpper(method), at, body)
					if answer == nil && status != http.StatusNotModified || status == http.StatusInternalServerError {
						w.t.Errorf("%s %s: %d %.300s", method, at, status, text)
					}
				}
				if !w.held[method+" "+path] {
					w.t.Errorf("%s %s was never held against its specification", method, path)
				}
			}
		}
	}
}
