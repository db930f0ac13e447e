package devcluster_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// member follows a path of members and of [0] in an answer.
func member(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			if len(x) == 0 {
				return nil
			}
			v = x[0]
		default:
			return nil
		}
	}
	return v
}

// TestRESTVersions: clients that were made for older versions of the interface, as firecrest and prometheus exporters
// are, and base addresses that end with a slash, as Slurm-web has them.
func TestRESTVersions(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true})
	w := newWeb(t, c, "ctl1")
	for _, ver := range []string{"v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40"} {
		at := "/slurm/" + ver
		sent := w.ok("POST", at+"/job/submit", `{"script":"#!/bin/sh\nsleep 300\n","job":{"name":"old","partition":"main",`+
			`"environment":["PATH=/bin:/usr/bin"],"current_working_directory":"/tmp","standard_output":"o-%j","tasks":1}}`)
		number, _ := sent["job_id"].(float64)
		id := strconv.Itoa(int(number))
		w.until(c, id, "RUNNING")
		job := member(w.ok("GET", at+"/job/"+id, ""), "jobs.[0]")
		now, before := member(job, "job_resources.nodes.count"), member(job, "job_resources.allocated_nodes.[0].nodename")
		if is := ver == "v0.0.40"; is != (before != nil) || is == (now != nil) {
			t.Errorf("%s: resources %v", ver, member(job, "job_resources"))
		}
		if has := member(job, "minimum_switches") != nil; has != (ver < "v0.0.42") {
			t.Errorf("%s: minimum_switches: %v", ver, has)
		}
		// What has not ended has the code 0; no time is 0; the members that real answers have.
		for path, want := range map[string]any{"exit_code.status.[0]": "SUCCESS", "exit_code.return_code.set": true,
			"deadline.set": true, "deadline.number": 0.0, "array_job_id.set": true, "array_job_id.number": 0.0,
			"time_minimum.set": true, "mail_user": member(job, "user_name"), "tasks_per_core.infinite": true} {
			if got := member(job, path); got != want {
				t.Errorf("%s: %s is %v, not %v", ver, path, got, want)
			}
		}
		record := member(w.ok("GET", "/slurmdb/"+ver+"/job/"+id, ""), "jobs.[0]")
		for path, want := range map[string]any{"exit_code.status.[0]": "SUCCESS", "stdin": "/dev/null", "stdout": "o-%j",
			"stdout_expanded": "/tmp/o-" + id, "flags.[0]": "STARTED_ON_SCHEDULE", "mcs.label": "",
			"steps.[0].task.distribution": "Unknown", "steps.[0].CPU.governor": "0"} {
			if got := member(record, path); got != want {
				t.Errorf("%s: %s of the record is %v, not %v", ver, path, got, want)
			}
		}
		w.ok("DELETE", at+"/job/"+id, "")
		part := member(w.ok("GET", at+"/partitions/", ""), "partitions.[0]")
		for path, want := range map[string]any{"defaults.job": "",
			"maximums.partition_memory_per_node.set": true, "maximums.oversubscribe.jobs": 1.0} {
			if got := member(part, path); got != want {
				t.Errorf("%s: %s of the partition is %v, not %v", ver, path, got, want)
			}
		}
		if got := member(w.ok("GET", at+"/nodes/", ""), "nodes.[0].energy.current_watts.set"); got != true {
			t.Errorf("%s: energy of a node: %v", ver, got)
		}
	}
	if status, _, said := w.do("GET", "///slurm//v0.0.44/ping", ""); status != http.StatusOK {
		t.Errorf("slashes: %d %s", status, said)
	}
	if status, _, _ := w.do("GET", "/slurm/v0.0.39/ping", ""); status != http.StatusNotFound {
		t.Errorf("v0.0.39 is served: %d", status)
	}
}

// TestRESTPlaceholder: a job that holds a place for a pod is described anew, as a whole, until it has nodes; that is
// how slurm-bridge tells what has changed.
func TestRESTPlaceholder(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true})
	w := newWeb(t, c, "ctl1")
	const whole = `"account":"default","admin_comment":"%s","cpus_per_task":1,"current_working_directory":"/tmp",` +
		`"excluded_nodes":[%s],"flags":["EXTERNAL_JOB"],"group_id":"0","maximum_nodes":1,"mcs_label":"kubernetes",` +
		`"memory_per_node":{"infinite":false,"number":100,"set":true},"minimum_nodes":1,"name":"p1","nodes":"1",` +
		`"partition":"main","shared":["none"],"tasks_per_node":1,"time_limit":{"set":%s},"user_id":"0"`
	sent := w.ok("POST", "/slurm/v0.0.44/job/submit", `{"job":{"hold":true,`+fmt.Sprintf(whole, "one", "", "false")+`}}`)
	number, _ := sent["job_id"].(float64)
	at := fmt.Sprintf("/slurm/v0.0.44/job/%d", int(number))
	w.ok("POST", at, `{`+fmt.Sprintf(whole, "one,two", `"n1"`, `true,"infinite":false,"number":5`)+`}`)
	job := member(w.ok("GET", at, ""), "jobs.[0]")
	for path, want := range map[string]any{"admin_comment": "one,two", "excluded_nodes": "n1", "time_limit.number": 5.0,
		"nodes": ""} {
		if got := member(job, path); got != want {
			t.Errorf("%s is %v, not %v", path, got, want)
		}
	}
}
