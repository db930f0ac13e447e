package devcluster_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// tagged: a client that has a list of jobs is told that it is as it was, until something has changed.
func tagged(t *testing.T, c *devcluster.Cluster, w *web) {
	const path = "/slurm/v0.0.44/jobs/"
	get := func(known string) (status int, tag string) {
		t.Helper()
		r, err := http.NewRequest("GET", "http://gbatch"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", known)
		got, err := w.c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, got.Body)
		if err = errors.Join(err, got.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return got.StatusCode, got.Header.Get("ETag")
	}
	var tag string
	c.Wait("nothing changes for a moment", func() error {
		_, tag = get("")
		if status, again := get(`"other", ` + tag); status != http.StatusNotModified || again != tag {
			return fmt.Errorf("%d %s %s", status, tag, again)
		}
		return nil
	})
	w.ok("POST", "/slurm/v0.0.44/node/n2", `{"comment":"something has changed"}`)
	if status, again := get(tag); status != http.StatusOK || again == tag {
		t.Errorf("after a change: %d %s %s", status, tag, again)
	}
}

// elsewhere: on a forwarded socket a browser sends what any site makes it send; without a token that is refused.
func elsewhere(t *testing.T, w *web) {
	for what, headers := range map[string][]string{
		"another origin":   {"Origin", "https://evil.example"},
		"no origin":        {"Origin", "null"},
		"another site":     {"Sec-Fetch-Site", "cross-site"},
		"another port":     {"Sec-Fetch-Site", "same-site"},
		"a name of theirs": {"Host", "evil.example:8080"},
	} {
		for _, r := range [][3]string{
			{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"environment":["A=b"]}}`},
			{"POST", "/api/v1/tasks", `{"command":"true"}`},
			{"GET", "/slurm/v0.0.44/jobs/", ""},
			{"GET", "/slurm/v0.0.44/reconfigure", ""},
			{"GET", "/api/v1/tasks", ""},
			{"GET", "/api/v1/events", ""},
		} {
			status, _, text := w.do(r[0], r[1], r[2], append(headers, "Content-Type", "text/plain")...)
			if status != http.StatusForbidden || !strings.Contains(text, "token") {
				t.Errorf("%s: %s %s: %d %.200s", what, r[0], r[1], status, text)
			}
		}
	}
	for _, headers := range [][]string{{"Origin", "http://gbatch"}, {"Sec-Fetch-Site", "same-origin"},
		{"Sec-Fetch-Site", "none"}, {"Host", "localhost:8080"}, {"Host", "[::1]"}, {"Host", "127.0.0.1:80"}} {
		if status, _, text := w.do("GET", "/slurm/v0.0.44/ping", "", headers...); status != http.StatusOK {
			t.Errorf("with %q: %d %.200s", headers, status, text)
		}
	}
}

// bad is what clients do wrong, and what they are told.
func bad(t *testing.T, w *web) {
	asNobody := []string{"X-SLURM-USER-NAME", "nobody"}
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
		{"POST", "/slurm/v0.0.44/job/submit", `{"jobs":[{"script":"#!/bin/sh","environment":["A=b"]},{"script":"x"}]}`, 422,
			"jobs[1].script", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"job":{"script":"#!/bin/sh","environment":["A=b"],"clusters":"b"}}`, 422,
			"cluster b", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"job":{"script":"#!/bin/sh","environment":["A=b"],"x11":["BATCH"]}}`, 422,
			"ssh -X", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"job":{"script":"#!/bin/sh","environment":["A=b"],"time_limit":-5}}`, 400,
			"time_limit: a number from 0 on is expected, and not -5", nil},
		{"POST", "/slurm/v0.0.44/job/submit",
			`{"script":"#!/bin/sh","job":{"environment":["A=b"],"time_limit":{"set":true,"number":-1}}}`, 400,
			"from 0 on", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"environment":{"A":[]}}}`, 400,
			"environment.A: a text is expected", nil},
		{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"environment":["A=b"],"user_id":"0"}}`, 403,
			"for oneself", asNobody},
		{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"environment":["A=b"],"group_id":0}}`, 403,
			"user nobody is not in group 0", asNobody},
		{"POST", "/slurm/v0.0.44/job/submit", `{"script":"#!/bin/sh","job":{"environment":["A=b"],"user_id":3999999999}}`,
			422, "no such user", nil},
		{"POST", "/slurm/v0.0.44/new/node", `{"node_conf":"CPUs=4"}`, 422, "NodeName=", nil},
		{"DELETE", "/slurm/v0.0.44/node/none", "", 422, "2018", nil},
		{"POST", "/slurm/v0.0.44/node/n1", "[", 403, "nodes are changed by operators", asNobody}, // before it is read
		{"POST", "/slurm/v0.0.44/new/node", "[", 403, "nodes are changed by operators", asNobody},
		{"POST", "/slurm/v0.0.44/reservations", "[", 403, "reservations are for operators", asNobody},
		{"DELETE", "/slurm/v0.0.44/reservation/none", "", 403, "reservations are for operators", asNobody},
		{"GET", "/slurm/v0.0.44/reconfigure", "", 403, "by administrators", asNobody},
		{"POST", "/util/v0.0.44/hostnames", `{"hostlist":"n[1-99999999]"}`, 422, "2018", nil},
		{"DELETE", "/slurmdb/v0.0.44/cluster/dev", "", 422, "can't be removed", nil},
		{"POST", "/slurmdb/v0.0.44/users/", `{"users":[{"name":"a","old_name":"b"}]}`, 422, "not renamed", nil},
		{"POST", "/slurmdb/v0.0.44/users/", `{"users":[{"name":"a","flags":["DELETED"]}]}`, 422, "DELETE user/a", nil},
		{"POST", "/slurmdb/v0.0.44/users_association/", `{"association_condition":{"clusters":["other"]}}`, 422,
			"cluster other", nil},
		{"POST", "/slurmdb/v0.0.44/wckeys/", `{"wckeys":[{"name":"a"}]}`, 422, "needs a name and a user", nil},
		{"POST", "/slurmdb/v0.0.44/tres/", `{"tres":[{"type":"gres","name":"x"}]}`, 422, "AccountingStorageTRES", nil},
		{"POST", "/slurmdb/v0.0.44/job/1", `{"derived_exit_code":{"return_code":{"set":true,"number":256}}}`, 422,
			"256:0", nil},
		{"POST", "/slurm/v0.0.44/job/submit", "job: &x {}\nscript: *x", 400, "aliases",
			[]string{"Content-Type", "application/yaml"}},
		{"POST", "/slurm/v0.0.44/job/submit", "<a/>", 415, "application/yaml", []string{"Content-Type", "text/xml"}},
		{"GET", "/openapi.yaml", "", 200, "\nopenapi: ", nil},
		{"GET", "/livez", "", 200, "ok", nil},
		{"GET", "/readyz", "", 200, "ok", nil},
		{"GET", "/metrics/nodes", "", 200, `slurm_node_cpus{node="n1"} 4`, nil},
		{"GET", "/metrics", "", 200, `gbatch_job_wait_seconds_count{gpu_type="",partition="main",qos="`, nil},
		{"GET", "/metrics", "", 200, "scheduler_queue_size ", nil},
		{"GET", "/metrics/scheduler", "", 200, "slurm_bf_cycle_cnt", nil},
	} {
		status, _, text := w.do(b.method, b.path, b.body, b.headers...)
		if status != b.status || !strings.Contains(text, b.says) {
			t.Errorf("%s %s %.60s: %d %.300s; want %d and %q", b.method, b.path, b.body, status, text, b.status, b.says)
		}
	}
}
