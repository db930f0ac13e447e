package cli

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
)

// What somebody else's text does to a terminal, and the line that it would like to be.
const (
	acts  = "\x1b[2J\x1b]52;c;cHdu\x07\u009b31m\u202e\x7f\xff"
	forge = "\n4242|root|COMPLETED\r\n4243 root\u2028"
)

// infect appends to every text of a value what acts.
func infect(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.String() != "" {
			v.SetString(v.String() + acts + forge)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			infect(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				infect(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			infect(v.Index(i))
		}
	}
}

// hostileFake is a cluster in which every text is of somebody who wants to do harm, as an older version kept it.
func hostileFake(t *testing.T) *clitest.Fake {
	f := jsonFake(t)
	for _, j := range f.Jobs { // fields that are empty there
		j.Comment = "admin"
		j.Spec.Comment, j.Spec.Features, j.Spec.Submit, j.Spec.Reservation = "c", "f", "sbatch run.sh", "r"
		j.Spec.DepText, j.Spec.Args, j.Spec.StdErr = "afterok:1", []string{"arg"}, "/home/a/err"
	}
	for _, r := range f.Records {
		r.Comment, r.AdminComment, r.Constraints, r.Why, r.Reservation = "c", "a", "f", "w", "r"
		r.Command, r.StdOut, r.StdErr, r.StdIn = "/home/a/run.sh", "o", "e", "i"
	}
	f.Prio = &proto.PrioChunk{Weights: model.Priority{Multifactor: true}, Rows: []proto.PrioRow{{Job: 9, JobText: "9",
		User: "bob", Account: "a", QOSName: "q", PartName: "p", Priority: 10600}}}
	used := []model.TRESCount{{TRES: "cpu", Count: 60}}
	f.Answers[proto.KindReport] = &proto.ReportChunk{Rows: []proto.ReportRow{{Cluster: "c", Account: "a", User: "bob",
		QOS: "q", Partition: "p", TRES: used, CPUs: 1, Jobs: 1, Started: 1, Ended: []int64{0, 0, 0, 1}}},
		Uses:  []proto.ClusterUse{{Cluster: "c", TRES: "cpu", Total: 60}},
		Resvs: []proto.ResvUse{{Cluster: "c", Name: "r", Nodes: "n1", TRES: used}}}
	f.Answers[proto.KindTriggers] = &proto.TriggersChunk{Triggers: []proto.TriggerInfo{{ID: 1, Of: model.TriggerJob,
		Events: model.OnFini}}}
	f.Answers[proto.KindCrontab] = &proto.CrontabReply{There: true, User: "bob", Text: []byte("@daily x\n")}
	for _, part := range []any{f.Jobs, f.Records, f.Nodes, f.Shares, f.Prio, f.Accts, f.Why, f.Diag} {
		infect(reflect.ValueOf(part))
	}
	for kind, m := range f.Answers {
		if kind != proto.KindPartitions { // its partitions are f.Parts
			infect(reflect.ValueOf(m))
		}
	}
	infect(reflect.ValueOf(f.Parts))
	return f
}

// TestHostileTexts: no list, in whatever form, lets another's text act on the terminal or be a line of its own.
func TestHostileTexts(t *testing.T) {
	f := hostileFake(t)
	forms := []string{"squeue -t all", "squeue -t all -l", "squeue -t all --start", "squeue -t all -r -o %all",
		"squeue -t all -O all", "squeue -h -t all -o %j|%k|%Z|%o|%q|%a|%f|%v|%E|%R|%u", "gqueue --why", "gqueue -t all",
		"sacct -a", "sacct -a -l", "sacct -a -P -o ALL", "sacct -a -p -n -o jobname,submitline,comment,workdir",
		"sacct -j 12 -B", "sinfo", "sinfo -a -l", "sinfo -a -N -l", "sinfo -R", "sinfo -a -o %all", "sinfo -a -O all",
		"sinfo -T", "sinfo -s", "ginfo -G", "scontrol show job", "scontrol -o show job", "scontrol -d show job 11",
		"scontrol show nodes", "scontrol -o show nodes", "scontrol show partitions", "scontrol show reservations",
		"scontrol -o show res",
		"scontrol show config", "scontrol show licenses", "scontrol ping", "gcontrol why", "gcontrol why 12",
		"sshare -a", "sshare -a -l -P", "sprio", "sprio -l", "sacctmgr show account", "sacctmgr -P show user withassoc",
		"sacctmgr show assoc", "sacctmgr -n -P show assoc", "sacctmgr show qos", "sacctmgr show cluster", "sdiag",
		"sreport user top -T cpu", "sreport cluster account", "sreport job sizes", "sreport job completion",
		"sreport res util", "sreport -P cluster util --json", "scrontab -l", "strigger --get"}
	for _, l := range jsonLists() {
		forms = append(forms, l.command)
	}
	ran := map[string]bool{}
	for _, form := range forms {
		words := strings.Fields(form)
		out, errText, rc := f.Run(words[0], words[1:]...)
		if rc == 0 && out != "" {
			ran[words[0]] = true
		}
		if rc != 0 {
			t.Logf("%s: rc %d, %q", form, rc, errText)
		}
		for line := range strings.SplitSeq(out+errText, "\n") {
			if err := plain.Check(strings.ReplaceAll(line, "\t", "")); err != nil {
				t.Errorf("%s prints %v: %q", form, err, line)
				break
			}
			if strings.HasPrefix(strings.TrimSpace(line), "424") {
				t.Errorf("%s prints a line that is nobody's: %q", form, line)
				break
			}
		}
	}
	for _, c := range commands() {
		lists := !slices.Contains([]string{"sbatch", "scancel", "srun", "salloc", "sstat", "seff", "sbcast", "sattach"},
			c.slurm)
		if lists && !ran[c.slurm] && !ran[c.name] {
			t.Errorf("%s was not tried", c.name)
		}
	}
}

// TestHostileJSON: JSON has every text exactly, in a form that does nothing to a terminal.
func TestHostileJSON(t *testing.T) {
	f := hostileFake(t)
	want := strings.ReplaceAll("train"+acts+forge, "\xff", "\ufffd")
	for _, form := range []string{"squeue --json -t all", "sacct --json -a", "scontrol --json show job"} {
		words := strings.Fields(form)
		out, errText, rc := f.Run(words[0], words[1:]...)
		var got struct{ Jobs []struct{ Name string } }
		err := json.Unmarshal([]byte(out), &got)
		if rc != 0 || err != nil || len(got.Jobs) == 0 || got.Jobs[0].Name != want {
			t.Errorf("%s: rc %d, %q, %v, %.300q", form, rc, errText, err, out)
		}
		if err := plain.Check(strings.ReplaceAll(out, "\n", "")); err != nil {
			t.Errorf("%s prints %v", form, err)
		}
	}
}
