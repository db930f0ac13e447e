package devcluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

const dbV = "/slurmdb/v0.0.44/"

// refused is do of what must be refused with a sentence.
func (w *web) refused(method, path, body string, status int, says string) {
	w.t.Helper()
	if got, _, text := w.do(method, path, body); got != status || !strings.Contains(text, says) {
		w.t.Errorf("%s %s %s: %d %.400s; want %d and %q", method, path, body, got, text, status, says)
	}
}

// clean is ok of what must be done without a warning.
func (w *web) clean(method, path, body string) map[string]any {
	w.t.Helper()
	a := w.ok(method, path, body)
	if list, _ := a["warnings"].([]any); len(list) > 0 {
		w.t.Errorf("%s %s: %v", method, path, list)
	}
	return a
}

// all gives what slurmdb lists, without what names the moment.
func (w *web) all(list string) any {
	w.t.Helper()
	return w.clean("GET", dbV+list+"/", "")[list]
}

// TestRESTAccounts: associations and QOS are removed and changed as the request says, and only so.
func TestRESTAccounts(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Conf: "GresTypes=gpu\nAccountingStorageTRES=gres/gpu"})
	w := newWeb(t, c, "ctl1")
	w.holdAll()
	for _, x := range [][2]string{{"phys", "ann"}, {"phys", "bob"}, {"chem", "bob"}} {
		w.clean("POST", dbV+"accounts/", `{"accounts":[{"name":"`+x[0]+`","description":"d","organization":"o"}]}`)
		w.clean("POST", dbV+"associations/", `{"associations":[{"account":"`+x[0]+`","user":"`+x[1]+`"}]}`)
	}
	before := w.all("associations")
	for _, x := range [][2]string{{"associations/?users=bob&account=phys", "users is no parameter"},
		{"associations/?users=&account=phys", "users is no parameter"},
		{"associations/?account=chem&user=,", "user= names nothing"}, {"associations/?user=,", "user= names nothing"},
		{"association/?account=chem&partition=", "partition= names nothing"}, {"associations/", "say which associations"},
		{"account/phys?with_asocs=1", "with_asocs is no parameter"}} {
		w.refused("DELETE", dbV+x[0], "", http.StatusUnprocessableEntity, x[1])
	}
	w.refused("POST", dbV+"qos/?name=a", `{"qos":[]}`, http.StatusUnprocessableEntity, "it has no parameters")
	w.refused("DELETE", "/slurm/v0.0.44/jobs/", `{"account":"phys","usr_name":"bob"}`, http.StatusUnprocessableEntity,
		"usr_name is no member")
	if after := w.all("associations"); !reflect.DeepEqual(before, after) {
		t.Errorf("refused requests changed associations: %v", after)
	}
	for path, want := range map[string]string{"accounts/?acount=phys": "acount= is not read",
		"users/?with_assocs=true": "", "users/?user_name=": "", "users/?without_defaults=false": "",
		"associations/?account=root&user=ann&Include%20sub%20acct%20information=1": ""} {
		a := w.ok("GET", dbV+path, "")
		if got := fmt.Sprint(a["warnings"]); want == "" && got != "[]" || !strings.Contains(got, want) {
			t.Errorf("GET %s: warnings %s; want %q", path, got, want)
		}
		if list, is := a["associations"].([]any); is && len(list) != 1 {
			t.Errorf("GET %s: %d associations", path, len(list))
		}
	}
	limitsKept(t, w)
	flagsKept(t, w)
	w.ok("DELETE", dbV+"associations/?account=phys&user=bob", "")
	if n := len(w.all("accounts").([]any)); n != 3 {
		t.Errorf("%d accounts are left", n)
	}
}

// limitsKept: limits are taken without a warning, and what was read can be sent back.
func limitsKept(t *testing.T, w *web) {
	t.Helper()
	counts := map[string]int{}
	set := func(spec string) string { // a number for each #, amounts for each @
		for strings.Contains(spec, "#") {
			counts["n"]++
			spec = strings.Replace(spec, "#", fmt.Sprintf(`{"set":true,"infinite":false,"number":%d}`, counts["n"]), 1)
		}
		for strings.Contains(spec, "@") {
			counts["n"]++
			spec = strings.Replace(spec, "@", fmt.Sprintf(`[{"type":"cpu","name":"","count":%d},`+
				`{"type":"gres","name":"gpu","count":%d}]`, counts["n"], counts["n"]+100), 1)
		}
		return spec
	}
	w.clean("POST", dbV+"associations/", set(`{"associations":[{"account":"phys","priority":#,"shares_raw":2147483647,`+
		`"min":{"priority_threshold":#},"max":{"jobs":{"active":#,"accruing":#,"total":#,"per":{"count":#,"accruing":#,`+
		`"submitted":#,"wall_clock":#}},"tres":{"total":[{"type":"cpu","count":2550,"percent":true}],"group":{`+
		`"minutes":@,"active":@},"minutes":{"total":@,"per":{"job":@}},"per":{"job":@,"node":@}},`+
		`"per":{"account":{"wall_clock":#}}}}]}`))
	w.clean("POST", dbV+"qos/", set(`{"qos":[{"name":"all","priority":#,"usage_factor":1.5,"flags":["NO_DECAY"],`+
		`"limits":{"min":{"priority_threshold":#,"tres":{"per":{"job":@}}},`+
		`"max":{"active_jobs":{"accruing":#,"count":#},"jobs":{`+
		`"count":#,"active_jobs":{"per":{"account":#,"user":#}},"per":{"account":#,"user":#}},"accruing":{"per":{`+
		`"account":#,"user":#}},"tres":{"total":@,"minutes":{"total":@,"per":{"qos":@,"job":@,"account":@,"user":@}},`+
		`"per":{"account":@,"job":@,"node":@,"user":@}},"wall_clock":{"per":{"qos":#,"job":#}}}}}]}`))
	for _, list := range []string{"associations", "qos"} {
		before := w.all(list)
		text := fmt.Sprint(before)
		for i := 1; i <= counts["n"]; i++ {
			if strings.Contains(text, fmt.Sprintf("number:%d set:true", i)) ||
				strings.Contains(text, fmt.Sprintf("count:%d ", i)) {
				counts[fmt.Sprint(i)]++
			}
		}
		b, _ := json.Marshal(map[string]any{list: before})
		w.clean("POST", dbV+list+"/", string(b))
		if after := w.all(list); !reflect.DeepEqual(before, after) {
			t.Errorf("%s sent back change from\n%v to\n%v", list, before, after)
		}
	}
	for i := 1; i <= counts["n"]; i++ {
		if counts[fmt.Sprint(i)] == 0 {
			t.Errorf("limit %d was not set", i)
		}
	}
	got := fmt.Sprint(w.clean("GET", dbV+"associations/?account=phys", ""))
	if !strings.Contains(got, "percent:true") ||
		!strings.Contains(got, "shares_raw:2.147483647e+09") {
		t.Errorf("association of phys: %s", got)
	}
}

// flagsKept: flags of QOS are added, removed and replaced; gbatch's own stand by themselves.
func flagsKept(t *testing.T, w *web) {
	t.Helper()
	qos := func(body string) string {
		t.Helper()
		w.clean("POST", dbV+"qos/", `{"qos":[{"name":"f",`+body+`}]}`)
		list, _ := w.clean("GET", dbV+"qos/f", "")["qos"].([]any)
		q, _ := list[0].(map[string]any)
		var own any
		if g, _ := q["gbatch"].(map[string]any); g != nil {
			own = g["flags"]
		}
		words, _ := q["flags"].([]any)
		slices.SortFunc(words, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		return fmt.Sprint(words, own)
	}
	for _, x := range [][2]string{{`"flags":["NO_DECAY","DENY_LIMIT"]`, "[DENY_LIMIT NO_DECAY] <nil>"},
		{`"flags":["REMOVE","NO_DECAY"]`, "[DENY_LIMIT] <nil>"},
		{`"flags":["ADD","NO_RESERVE"]`, "[DENY_LIMIT NO_RESERVE] <nil>"},
		{`"gbatch":{"flags":["HEADROOM","NO_PREEMPT"]}`, "[DENY_LIMIT NO_RESERVE] [NO_PREEMPT HEADROOM]"},
		{`"flags":["NO_DECAY"]`, "[NO_DECAY] [NO_PREEMPT HEADROOM]"},
		{`"flags":["REMOVE","HEADROOM"]`, "[NO_DECAY] [NO_PREEMPT]"},
		{`"flags":["NO_DECAY"],"gbatch":{"flags":[]}`, "[NO_DECAY] <nil>"}} {
		if got := qos(x[0]); got != x[1] {
			t.Errorf("%s: %s; want %s", x[0], got, x[1])
		}
	}
	for word, says := range map[string]string{"DELETED": "DELETE qos/f", "NO_DECAI": "is no flag of a QOS"} {
		w.refused("POST", dbV+"qos/", `{"qos":[{"name":"f","flags":["`+word+`"]}]}`, http.StatusUnprocessableEntity, says)
	}
}

// records gives what slurmdb's jobs says of jobs: each run's state and number of steps.
func (w *web) records(query string) (states []string) {
	w.t.Helper()
	list, _ := w.clean("GET", dbV+query, "")["jobs"].([]any)
	for _, x := range list {
		j, _ := x.(map[string]any)
		steps, _ := j["steps"].([]any)
		state, _ := j["state"].(map[string]any)
		states = append(states, fmt.Sprint(state["current"], len(steps)))
	}
	return states
}

// TestRESTJobs: every run of a job is in its records, members of jobs are cleared, and words are data_parser's.
func TestRESTJobs(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true})
	w := newWeb(t, c, "ctl1")
	w.holdAll()
	again := w.submit("again", "sleep 300", `,"requeue":true`)
	w.until(c, again, "RUNNING")
	n, _ := strconv.Atoi(again)
	var reply proto.TargetsReply
	if err := c.Client().Call(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActRequeueHold,
		Targets: []model.JobRef{{Job: model.JobID(n), Task: model.NoTask}}}, &reply); err != nil {
		t.Fatal(err)
	}
	w.until(c, again, "PENDING")
	c.Wait("both runs are in accounting", func() error {
		if got := w.records("job/" + again); len(got) != 2 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	got := fmt.Sprint(w.clean("GET", dbV+"job/"+again, "")["jobs"])
	if !strings.Contains(got, "script:#!/bin/sh\nsleep 300") {
		t.Errorf("record of job %s has no script: %s", again, got)
	}
	one := "?step=" + again // without a name the second run, which was never eligible, is left out
	for query, runs := range map[string]int{"": 1, "?start_time=0": 1, "?start_time=1000000": 1, "?start_time=0101": 1,
		one: 2, one + "&show_duplicates=false": 1, one + "&skip_steps=1": 1, one + "&scheduler_unset=1": 1,
		"?show_duplicates=true&scheduled_by_main=1": 1, "?scheduled_by_backfill=1": 0, "?cluster=dev": 1,
		"?start_time=32503680000": 0, "?node=n[1,2]&start_time=0": 1} {
		if got := w.records("jobs/" + query); len(got) != runs {
			t.Errorf("jobs/%s: %v; want %d", query, got, runs)
		}
	}
	if got := w.records("jobs/?skip_steps=true&show_duplicates=true"); strings.Contains(fmt.Sprint(got), "] 1") {
		t.Errorf("steps that were not wanted: %v", got)
	}
	w.refused("GET", dbV+"jobs/?cluster=other", "", http.StatusUnprocessableEntity, "cluster other")

	const job = "/slurm/v0.0.44/job/"
	held := w.submit("held", "true", `,"hold":true,"dependency":"afterany:`+again+`","comment":"c","minimum_nodes":1,`+
		`"mail_type":["INVALID_DEPENDENCY","TIME=90%","END"],"mail_user":"root","flags":["PREFER_MINIMUM_NODE_COUNT"],`+
		`"shared":["none"]`)
	read := func() map[string]any {
		t.Helper()
		list, _ := w.clean("GET", job+held, "")["jobs"].([]any)
		j, _ := list[0].(map[string]any)
		return j
	}
	j := read()
	if got := fmt.Sprint(j["mail_type"], j["flags"], j["shared"]); got != "[INVALID_DEPENDENCY END TIME=90%] "+
		"[PREFER_MINIMUM_NODE_COUNT] [none]" {
		t.Errorf("words of the job: %s", got)
	}
	w.clean("POST", job+held, `{"dependency":"","comment":"","maximum_nodes":{"set":true,"number":2}}`)
	j = read()
	if most, _ := j["max_nodes"].(map[string]any); j["dependency"] != "" || j["comment"] != "" || most["number"] != 2.0 {
		t.Errorf("dependency %v, comment %v, max_nodes %v", j["dependency"], j["comment"], most)
	}
	w.clean("POST", job+held, `{"mail_type":["TIME=100%"]}`)
	if got := fmt.Sprint(read()["mail_type"]); got != "[TIME=100%]" {
		t.Errorf("mail_type %s", got)
	}

	// What Slurm's parser takes in other forms: numbers of users, an object of variables, the least and the most.
	for _, body := range []string{`{"job":{"user_id":"65534","group_id":65534,"flags":["EXTERNAL_JOB"],"nodes":[1,2]}}`,
		`{"job":{"script":"#!/bin/sh\n","environment":{"PATH":"/bin"},"user_id":65534,"group_id":"65534","nodes":[1,2],` +
			`"argv":"a,b","hold":"yes","memory_per_node":"1M","begin_time":"2090-01-01T00:00:00"}}`} {
		id := fmt.Sprint(w.clean("POST", job+"submit", body)["job_id"])
		list, _ := w.clean("GET", job+id, "")["jobs"].([]any)
		x, _ := list[0].(map[string]any)
		most, _ := x["max_nodes"].(map[string]any)
		got := fmt.Sprint(x["user_name"], " ", x["user_id"], x["group_id"], most["number"])
		if got != "nobody 65534 65534 2" {
			t.Errorf("%s: %s", body, got)
		}
	}

	w.clean("POST", "/slurm/v0.0.44/node/n2", `{"comment":"c","extra":"e","features":["a","b"]}`)
	w.clean("POST", "/slurm/v0.0.44/node/n2", `{"comment":"","extra":"","features":[]}`)
	nodes, _ := w.clean("GET", "/slurm/v0.0.44/node/n2", "")["nodes"].([]any)
	if x, _ := nodes[0].(map[string]any); fmt.Sprint(x["comment"], x["extra"], x["features"]) != "[]" {
		t.Errorf("node n2: comment %v, extra %v, features %v", x["comment"], x["extra"], x["features"])
	}

	resv := func(flags string) string {
		t.Helper()
		w.clean("POST", "/slurm/v0.0.44/reservation", `{"name":"r","start_time":{"set":true,"number":32503680000},`+
			`"duration":{"set":true,"number":60},"node_list":["n1"],"users":["root"],"flags":[`+flags+`]}`)
		list, _ := w.clean("GET", "/slurm/v0.0.44/reservation/r", "")["reservations"].([]any)
		r, _ := list[0].(map[string]any)
		return fmt.Sprint(r["flags"])
	}
	for _, x := range [][2]string{{`"STATIC","NO_HOLD_JOBS_AFTER_END"`, "[SPEC_NODES NO_HOLD_JOBS_AFTER_END STATIC]"},
		{`"MAINT"`, "[MAINT SPEC_NODES NO_HOLD_JOBS_AFTER_END STATIC]"},
		{`"NO_MAINT","NO_STATIC","SPEC_NODES"`, "[SPEC_NODES NO_HOLD_JOBS_AFTER_END]"}} {
		if got := resv(x[0]); got != x[1] {
			t.Errorf("reservation with %s: %s; want %s", x[0], got, x[1])
		}
	}
	if got := fmt.Sprint(w.clean("GET", "/slurm/v0.0.44/partitions/", "")); !strings.Contains(got, "oversubscribe:map[") {
		t.Errorf("partitions lack oversubscribe: %s", got)
	}
}
