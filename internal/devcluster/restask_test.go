package devcluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
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
