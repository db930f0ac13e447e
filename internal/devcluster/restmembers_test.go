package devcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// members lists the members of a schema's objects, as paths.
func (s *spec) members(schema map[string]any, path string, depth int, add func(path string)) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = s.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
	if depth == 0 {
		return
	}
	if items, ok := schema["items"].(map[string]any); ok {
		s.members(items, path+"[]", depth-1, add)
	}
	props, _ := schema["properties"].(map[string]any)
	for name, p := range props {
		at := strings.TrimPrefix(path+"."+name, ".")
		add(at)
		if of, ok := p.(map[string]any); ok {
			s.members(of, at, depth-1, add)
		}
	}
}

// withoutUse are members of Slurm's specification that no answer has: nothing here is meant by them.
var withoutUse = []string{"nodes[].tres_weighted", "reservations[].core_specializations[].core"}

// newOnly are members of v0.0.43 that answers of v0.0.44 have: the commands write v0.0.43 too, in the shape of v0.0.40.
var newOnly = []string{"jobs[].reservation.requested", "jobs[].segment_size", "jobs[].steps[].time.limit",
	"jobs[].steps[].step.stderr", "jobs[].steps[].step.stderr_expanded", "jobs[].steps[].step.stdin",
	"jobs[].steps[].step.stdin_expanded", "jobs[].steps[].step.stdout", "jobs[].steps[].step.stdout_expanded"}

// TestRESTMembers: answers have all the members that Slurm's specification of their version has, as far as their
// objects are described, and numbers are the same in all answers.
func TestRESTMembers(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 2, Gres: "gpu:a100:2"})
	w := newWeb(t, c, "ctl1")
	w.holdAll()
	for ver, list := range w.specs {
		if len(list) < 2 {
			continue // Slurm's own is not here
		}
		for path, ops := range list[1].Paths {
			have := map[string]bool{} // and the objects that have described members
			for _, content := range list[0].Paths[path]["get"].Responses["200"].Content {
				list[0].members(content.Schema, "", 12, func(p string) {
					have[p] = true
					if i := strings.LastIndexByte(p, '.'); i > 0 {
						have[p[:i+1]] = true
					}
				})
			}
			for _, content := range ops["get"].Responses["200"].Content {
				list[1].members(content.Schema, "", 12, func(p string) {
					of := p[:strings.LastIndexByte(p, '.')+1]
					if ver < "v0.0.44" && slices.Contains(newOnly, p) || slices.Contains(withoutUse, p) {
						return
					}
					if have[of] && !have[p] {
						t.Errorf("%s: there is no %s", path, p)
					}
				})
			}
		}
	}
	numbers := map[string]any{}
	list, _ := w.ok("GET", "/slurmdb/v0.0.44/tres/", "")["TRES"].([]any)
	for _, x := range list {
		numbers[fmt.Sprint(member(x, "type"), "/", member(x, "name"))] = member(x, "id")
	}
	id := w.submit("n", "sleep 300", `,"tres_per_node":"gres/gpu:1","partition":"main"`)
	w.until(c, id, "RUNNING")
	has := false
	c.Wait("a record", func() error {
		list, _ := member(w.ok("GET", "/slurmdb/v0.0.44/job/"+id, ""), "jobs.[0].tres.allocated").([]any)
		for _, x := range list {
			name := fmt.Sprint(member(x, "type"), "/", member(x, "name"))
			if want := numbers[name]; want == nil || member(x, "id") != want {
				t.Errorf("%s has the number %v, and not %v", name, member(x, "id"), want)
			}
			has = has || name == "gres/gpu"
		}
		if !has {
			return fmt.Errorf("%v", list)
		}
		return nil
	})
	if got := member(w.ok("GET", "/slurmdb/v0.0.44/clusters/", ""), "clusters.[0].nodes"); got != "n[1-2]" {
		t.Errorf("the cluster's nodes: %v", got)
	}
	if n, _ := member(w.ok("GET", "/slurmdb/v0.0.44/ping/", ""), "pings.[0].latency").(float64); n <= 0 {
		t.Error("gdbd's answers take no time")
	}
	w.ok("POST", "/slurm/v0.0.44/reservation", `{"name":"r","users":["root"],"node_count":1,"flags":["REPLACE_DOWN"],`+
		`"start_time":{"set":true,"number":4000000000},"duration":{"set":true,"number":10}}`)
	for ver, want := range map[string]string{"v0.0.42": "gbatch.flags.[0]", "v0.0.43": "gbatch.flags.[0]",
		"v0.0.44": "flags.[0]"} {
		resv := member(w.ok("GET", "/slurm/"+ver+"/reservation/r", ""), "reservations.[0]")
		if got := member(resv, want); got != "REPLACE_DOWN" {
			t.Errorf("%s: %v", ver, resv)
		}
	}
}
