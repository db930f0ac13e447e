package devcluster_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/devcluster"
)

// web is a client of a controller's HTTP socket.
type web struct {
	t *testing.T
	c http.Client
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
	"[].task", "[].percent", "core_specializations[].cpus", "core_specializations[].gres", "core_specializations[].memory"}

// check holds a value against a schema.
func (s *spec) check(v any, schema map[string]any, path string, bad map[string]bool) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = s.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
	wrong := func(format string, a ...any) { bad[path+": "+fmt.Sprintf(format, a...)] = true }
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
			if name, _ := r.(string); !strings.Contains(name, "/") && m[name] == nil { // nodes/count is of a nested object
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

// TestREST: jobs, nodes, reservations and accounts are made, read, changed and removed over HTTP; each answer holds
// against the specification that is served and, where it is there, against Slurm's own, in each version.
func TestREST(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true,
		Conf: "PriorityType=priority/multifactor"})
	w := newWeb(t, c, "ctl1")
	const job = `{"script":"#!/bin/sh\nsleep 300\n","job":{"name":%q,"environment":["PATH=/bin:/usr/bin"],` +
		`"current_working_directory":"/tmp","standard_output":"/dev/null","time_limit":{"set":true,"number":10}%s}}`
	submit := func(name, more string) string {
		t.Helper()
		id, _ := w.ok("POST", "/slurm/v0.0.44/job/submit", fmt.Sprintf(job, name, more))["job_id"].(float64)
		if id == 0 {
			t.Fatal("no job_id")
		}
		return fmt.Sprint(int(id))
	}
	running := submit("runs", `,"cpus_per_task":1,"memory_per_node":{"set":true,"number":100}`)
	submit("held", `,"hold":true`)
	submit("array", `,"array":"1-3%1","dependency":"afterany:`+running+`"`)
	submit("outside", `,"tasks":1`)
	gone := submit("gone", `,"hold":true`)
	w.ok("POST", "/slurm/v0.0.44/job/"+gone, `{"comment":"changed","time_limit":{"set":true,"number":5}}`)
	w.ok("DELETE", "/slurm/v0.0.44/job/"+gone, "")
	w.ok("POST", "/slurm/v0.0.44/node/n2", `{"state":["DRAIN"],"reason":"a test"}`)
	w.ok("POST", "/slurm/v0.0.44/reservation", fmt.Sprintf(`{"name":"r1","start_time":{"set":true,"number":%d},`+
		`"duration":{"set":true,"number":60},"node_list":["n2"],"users":["root"]}`, time.Now().Unix()+3600))
	w.ok("POST", "/slurmdb/v0.0.44/accounts_association/", `{"association_condition":{"accounts":["physics"],`+
		`"association":{"grpjobs":{"set":true,"number":7},"grptres":[{"type":"cpu","count":9}]}},`+
		`"account":{"description":"atoms"}}`)
	w.ok("POST", "/slurmdb/v0.0.44/users_association/", `{"association_condition":{"accounts":["physics"],`+
		`"users":["ann"],"association":{"maxjobs":{"set":true,"number":3}}},"user":{}}`)
	w.ok("POST", "/slurmdb/v0.0.44/qos/", `{"qos":[{"name":"fast","priority":{"set":true,"number":5},`+
		`"flags":["DENY_LIMIT"]}]}`)
	c.Wait("the job runs", func() error {
		if text := fmt.Sprint(w.ok("GET", "/slurm/v0.0.44/job/"+running, "")["jobs"]); !strings.Contains(text,
			"job_state:[RUNNING]") {
			return errors.New(text)
		}
		return nil
	})
	c.Wait("gdbd has the first job's record", func() error {
		status, answer, text := w.do("GET", "/slurmdb/v0.0.44/job/1", "")
		if jobs, _ := answer["jobs"].([]any); status != http.StatusOK || len(jobs) == 0 {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	_, _, text := w.do("GET", "/openapi/v3", "")
	mine := &spec{}
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(mine); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("{job_id}", running, "{node_name}", "n1", "{partition_name}", "main",
		"{reservation_name}", "r1", "{qos}", "fast", "{cluster_name}", "dev", "{account_name}", "physics", "{id}", "1",
		"{name}", "ann")
	for _, ver := range []string{"v0.0.44", "v0.0.43", "v0.0.42"} {
		theirs := published(t, ver)
		if theirs == nil {
			t.Logf("Slurm's own specification of %s is not here; only the served one is held against", ver)
		}
		for path, methods := range mine.Paths {
			if _, get := methods["get"]; !get || !strings.Contains(path, ver) || strings.Contains(path, "reconfigure") {
				continue
			}
			at := names.Replace(path)
			if strings.HasSuffix(path, "/association/") {
				at += "?account=physics&user=ann"
			}
			answer := w.ok("GET", at, "")
			for who, s := range map[string]*spec{"the served": mine, "Slurm's": theirs} {
				if s == nil {
					continue
				}
				op, ok := s.Paths[path]["get"]
				if !ok {
					t.Errorf("%s: %s specification has no such path", path, who)
					continue
				}
				bad := map[string]bool{}
				for _, content := range op.Responses["200"].Content {
					s.check(answer, content.Schema, "", bad)
				}
				for b := range bad {
					t.Errorf("%s, %s specification: %s", path, who, b)
				}
			}
		}
	}
	w.ok("DELETE", "/slurm/v0.0.44/reservation/r1", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/association/?account=physics&user=ann", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/account/physics", "")
	w.ok("DELETE", "/slurmdb/v0.0.44/qos/fast", "")
	w.ok("DELETE", "/slurm/v0.0.44/jobs/", `{"user_name":"root"}`)
	bad(t, w)
}

// bad is what clients do wrong, and what they are told.
func bad(t *testing.T, w *web) {
	for _, b := range []struct {
		method, path, body string
		status             int
		says               string
		headers            []string
	}{
		{"GET", "/slurm/v0.0.99/ping", "", 404, "Unable to find requested URL", nil},
		{"GET", "/slurm/v0.0.44/../../etc/passwd", "", 404, "Unable to find requested URL", nil},
		{"PUT", "/slurm/v0.0.44/ping", "", 405, "Unable to find requested URL method", nil},
		{"GET", "/slurm/v0.0.44/ping", "", 511, "1007", []string{"X-SLURM-USER-TOKEN", "e30.e30.e30"}},
		{"GET", "/slurm/v0.0.44/job/77777", "", 404, "2017", nil},
		{"GET", "/slurm/v0.0.44/job/x", "", 404, "2017", nil},
		{"GET", "/slurm/v0.0.44/node/none", "", 200, "Failure to query node none", nil},
		{"GET", "/slurm/v0.0.44/reservation/none", "", 422, "9000", nil},
		{"POST", "/slurm/v0.0.44/job/submit", "{", 400, "can't be read", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"job":{"name":[]}}`, 400, "a text is expected", nil},
		{"POST", "/slurm/v0.0.44/job/submit", strings.Repeat("[", 100), 400, "deep", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"job":{"environment":["A=b"]}}`, 422, "2009", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"environment":[]}}`, 422, "2127", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"partition":"none","environment":["A=b"]}}`, 422,
			"2000", nil},
		{"GET", "/slurm/v0.0.44/jobs/?update_time=32503680000", "", 304, "", nil},
		{"GET", "/livez", "", 200, "ok", nil},
		{"GET", "/readyz", "", 200, "ok", nil},
		{"GET", "/metrics/nodes", "", 200, `slurm_node_cpus{node="n1"} 4`, nil},
		{"GET", "/metrics/scheduler", "", 200, "slurm_bf_cycle_cnt", nil},
	} {
		status, _, text := w.do(b.method, b.path, b.body, b.headers...)
		if status != b.status || !strings.Contains(text, b.says) {
			t.Errorf("%s %s %.60s: %d %.300s; want %d and %q", b.method, b.path, b.body, status, text, b.status, b.says)
		}
	}
}
