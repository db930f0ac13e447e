package devcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// TestRESTExternal: nodes of another system, as slurm-bridge makes them of Kubernetes' nodes. They have no daemon, are
// there at once, take jobs whose processes are that system's and no others, and give back what these held.
func TestRESTExternal(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 1,
		Conf: "GresTypes=gpu\nSlurmdTimeout=5\nNodeSet=bridge Feature=bridge\n" +
			"PartitionName=bridge Nodes=bridge State=UP\n"})
	w := newWeb(t, c, "ctl1")
	const at = "/slurm/v0.0.44"
	for _, name := range []string{"k1", "k2"} {
		w.ok("POST", at+"/new/node/", `{"node_conf":"NodeName=`+name+` Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 CPUs=4 `+
			`RealMemory=8000 State=External Feature=bridge Gres=\"gpu:gpu.example.com:2\" `+
			`GresConf=\"count=1,name=gpu,type=gpu.example.com,file=/dra/gpu.example.com/`+name+`/gpu-0+`+
			`count=1,name=gpu,type=gpu.example.com,file=/dra/gpu.example.com/`+name+`/gpu-1\""}`)
	}
	is := func(node string, want ...string) {
		t.Helper()
		c.Wait(node+" is "+strings.Join(want, "+"), func() error {
			var got []string
			for _, s := range member(w.ok("GET", at+"/node/"+node, ""), "nodes.[0].state").([]any) {
				got = append(got, s.(string))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("it is %v", got)
			}
			return nil
		})
	}
	is("k1", "EXTERNAL", "IDLE")
	is("k2", "EXTERNAL", "IDLE")
	const job = `{"job":{"flags":["EXTERNAL_JOB"],"partition":"bridge","nodes":"%d","tasks_per_node":1,` +
		`"current_working_directory":"/tmp","tres_per_node":"gres/gpu:gpu.example.com:1","shared":["none"],` +
		`"memory_per_node":{"set":true,"number":100},"user_id":"0","group_id":"0"}}`
	submit := func(nodes int) string {
		t.Helper()
		id, _ := w.ok("POST", at+"/job/submit", fmt.Sprintf(job, nodes))["job_id"].(float64)
		return fmt.Sprint(int(id))
	}
	one, two := submit(1), ""
	w.until(c, one, "RUNNING")
	found := w.ok("GET", at+"/job/"+one, "")
	if got := member(found, "jobs.[0].flags"); !strings.Contains(fmt.Sprint(got), "EXTERNAL_JOB") {
		t.Errorf("flags of the job: %v", got)
	}
	where := fmt.Sprint(member(found, "jobs.[0].nodes"))
	layout := w.ok("GET", at+"/resources/"+one, "")
	for path, want := range map[string]any{"nodes.[0].node": where, "nodes.[0].gres.[0].name": "gpu",
		"nodes.[0].gres.[0].type": "gpu.example.com", "nodes.[0].gres.[0].count": 2.0, // it has the node for itself
		"nodes.[0].gres.[0].index": "0-1"} {
		if got := member(layout, path); got != want {
			t.Errorf("%s of the layout is %v, not %v: %v", path, got, want, layout)
		}
	}
	if got := member(w.ok("GET", at+"/node/"+where, ""), "nodes.[0].gres_used"); got != "gpu:gpu.example.com:2(IDX:0-1)" {
		t.Errorf("gres_used is %v", got)
	}
	w.ok("DELETE", at+"/job/"+one, "")
	w.until(c, one, "CANCELLED")
	is(where, "EXTERNAL", "IDLE")
	two = submit(2)
	w.until(c, two, "RUNNING")
	w.ok("DELETE", at+"/job/"+two, "")
	w.until(c, two, "CANCELLED")

	// No other job may come: nothing would run it.
	status, _, said := w.do("POST", at+"/job/submit",
		`{"job":{"script":"#!/bin/sh\ntrue","environment":["A=b"],"partition":"bridge"}}`)
	if status == 200 || !strings.Contains(string(said), "State=EXTERNAL") {
		t.Errorf("a script for nodes without a daemon: %d %s", status, said)
	}

	w.ok("POST", at+"/node/k1", `{"state":["DRAIN"],"reason":"slurm-bridge: cordoned"}`)
	is("k1", "DRAIN", "EXTERNAL", "IDLE")
	w.ok("POST", at+"/node/k1", `{"state":["UNDRAIN"],"reason":"slurm-bridge: back"}`)
	is("k1", "EXTERNAL", "IDLE")
	w.ok("POST", at+"/node/k1", `{"state":["DOWN"],"reason":"a test"}`)
	is("k1", "DOWN", "EXTERNAL")
	w.ok("POST", at+"/node/k1", `{"state":["RESUME"]}`)
	is("k1", "EXTERNAL", "IDLE")
	const extra = `slurm-bridge.dra-gres-map={\"v\":2}`
	w.ok("POST", at+"/node/k1", `{"extra":"`+extra+`"}`)
	if got := member(w.ok("GET", at+"/node/k1", ""), "nodes.[0].extra"); got != strings.ReplaceAll(extra, `\`, "") {
		t.Errorf("extra is %v", got)
	}

	// They are removed and made anew when what they have changes.
	w.ok("DELETE", at+"/node/k1", "")
	w.ok("POST", at+"/new/node/",
		`{"node_conf":"NodeName=k1 CPUs=2 RealMemory=8000 State=External Gres=\"\" GresConf=\"\""}`)
	is("k1", "EXTERNAL", "IDLE")
	status, _, said = w.do("POST", at+"/new/node/", `{"node_conf":"NodeName=k3 State=External Gres=gpu:2 `+
		`GresConf=\"name=gpu,count=1\""}`)
	if status == 200 || !strings.Contains(string(said), "GresConf has gpu:1, and Gres does not") {
		t.Errorf("GresConf and Gres that differ: %d %s", status, said)
	}
}
