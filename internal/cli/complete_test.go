package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/cli/complete"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// completing is a cluster with something of each kind.
func completing(t *testing.T) *clitest.Fake {
	f := clitest.New(t, Main)
	f.Parts = []*model.Partition{{Name: "main"}, {Name: "gpu"}, {Name: "old", Hidden: true}}
	me := uint32(os.Getuid())
	f.Jobs = []*model.Job{{ID: 12, State: model.Running, Spec: &model.Spec{Name: "train", User: "ann", UID: me}},
		{ID: 15, State: model.Pending, Spec: &model.Spec{Name: "eval", User: "ann", UID: me}}}
	f.Accts = &proto.AccountsChunk{Accounts: []*model.Account{{Name: "physics"}, {Name: "root"}},
		Users: []*model.User{{Name: "ann"}}, QOS: []*model.QOS{{Name: "normal"}, {Name: "urgent"}}}
	f.Answers = map[uint16]proto.Message{
		proto.KindConfig: &proto.ConfigReply{Config: &model.Config{Cluster: "demo",
			Licenses: []model.LicenseCount{{Name: "matlab"}},
			Nodes: []*model.NodeDef{
				{Name: "n1", Features: []string{"a100"}, Gres: []model.GresDef{{Name: "gpu", Type: "a100"}}},
				{Name: "n2", Features: []string{"a100"}}}}},
		proto.KindReservations: &proto.ReservationsReply{List: []*model.Reservation{{Name: "maint"}},
			Sizes: []proto.ResvSize{{}}},
	}
	return f
}

// TestComplete: what a shell gets for the last word of a line.
func TestComplete(t *testing.T) {
	f := completing(t)
	for _, c := range []struct{ line, want string }{
		{"gqueue --part", "--partition="},
		{"gqueue -p ", "main gpu"},
		{"squeue --partition=main,g", "--partition=main,gpu"},
		{"gqueue -pg", "-pgpu"},
		{"gqueue --part m", "main"},
		{"gqueue -t pend", "PENDING"},
		{"gqueue -l -j ", "12 15"},
		{"gcancel ", "12 15"},
		{"gcancel -- 1", "12 15"},
		{"gsubmit -A ", "physics root"},
		{"gsubmit --gres=", "--gres=gpu --gres=gpu: --gres=gpu:a100"},
		{"gsubmit -C ", "a100"},
		{"gsubmit -L m", "matlab"},
		{"gsubmit -d afterok:", "afterok:12 afterok:15"},
		{"gsubmit --dependency=afterok:12:", "--dependency=afterok:12:12 --dependency=afterok:12:15"},
		{"gsubmit -d aft", "after: afterany: aftercorr: afternotok: afterok:"},
		{"gsubmit --open-mode=", "--open-mode=append --open-mode=truncate"},
		{"gsubmit -q ", "normal urgent"},
		{"gsubmit --reservation ", "maint"},
		{"gsubmit -w n1,", "n1,n2"},
		{"gsubmit job.sh --p", ":files"},
		{"gsubmit -o ", ":files"},
		{"gsubmit -D ", ":dirs"},
		{"grun ", ":commands"},
		{"grun python tr", ":files"},
		{"grun -n 2 -p ", "main gpu"},
		{"gacct -M ", "demo all"},
		{"gcontrol sh", "show"},
		{"gcontrol show n", "node"},
		{"gcontrol show node ", "n1 n2"},
		{"gcontrol hold ", "12 15"},
		{"gcontrol update j", "JobId="},
		{"gcontrol update JobId=", "JobId=12 JobId=15"},
		{"gcontrol update jobid=12 timel", "TimeLimit="},
		{"gcontrol update jobid=12 partition=g", "partition=gpu"},
		{"gcontrol update nodename=n1 state=dr", "state=DRAIN"},
		{"gacctmgr show a", "account association"},
		{"gacctmgr add user ann acc", "account="},
		{"gacctmgr add user ann account=p", "account=physics"},
		{"gacctmgr modify user ann set qos+=u", "qos+=urgent"},
		{"gdiag --nonsense ", ""},
		{"nosuch ", ""},
	} {
		out, errOut, _ := f.Run("gcli", append([]string{"complete", "bash"}, strings.Split(c.line, " ")...)...)
		var got []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != c.want || errOut != "" {
			t.Errorf("%q: %q, want %q; stderr %q", c.line, strings.Join(got, " "), c.want, errOut)
		}
	}
}

// TestCompleteWithoutCluster: nothing is printed, and soon.
func TestCompleteWithoutCluster(t *testing.T) {
	f := clitest.New(t, Main)
	f.Env["GBATCH_CONF"] = "/nowhere/gbatch.conf"
	if out, errOut, rc := f.Run("gcli", "complete", "bash", "gqueue", "-p", ""); out+errOut != "" || rc != 0 {
		t.Errorf("%q, %q, exit %d", out, errOut, rc)
	}
	if _, errOut, rc := f.Run("gcli", "complete", "tcsh", "gqueue"); rc != 2 || !strings.HasPrefix(errOut, "usage:") {
		t.Errorf("another shell: %q, exit %d", errOut, rc)
	}
}

// TestCompletionKnowsEachOption: the value of each option is completed, or it is one that only its user knows. What is
// offered as such is what the option takes.
func TestCompletionKnowsEachOption(t *testing.T) {
	for _, c := range commands() {
		e := &env.Env{Program: c.name, Args: []string{getopt.Completing}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
			Lookup: func(string) (string, bool) { return "", false }}
		e.Complete = func(p *getopt.Parser) int {
			for _, text := range complete.Unknown(p) {
				t.Errorf("%s %s: say what its value is in complete/values.go, or that only the user knows", c.name, text)
			}
			for _, text := range complete.Wrong(p) {
				t.Errorf("%s %s", c.name, text)
			}
			return 0
		}
		c.run(e)
	}
}

// TestBashCompletion: the shell's side, with bash's own splitting of words at = and :.
func TestBashCompletion(t *testing.T) {
	dir := t.TempDir()
	fake := "#!/bin/sh\nshift 2\nprintf '%s\\n' \"$*\" >>" + filepath.Join(dir, "asked") + `
case "$*" in
*--partition=*) printf '%s\t\n' --partition=main --partition=main2 ;;
*afterok:*) printf '%s\t\n' afterok:12 ;;
*--part*) printf '%s\t%s\n' --partition= 'only these' ;;
*" -o "*) printf ':files\t\n' ;;
esac
`
	for name, text := range map[string]string{"gcli": fake, "a file": "", "squeue": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("../../etc/completion/gcli.bash")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(line string, words []string) string {
		cmd := exec.Command("bash", "--norc", "-c", fmt.Sprintf("compopt() { echo \"compopt $*\"; }; . %s\n"+
			"COMP_WORDS=(%s) COMP_CWORD=%d COMP_LINE=%q COMP_POINT=%d\n_gcli\nprintf '%%s\\n' \"${COMPREPLY[@]}\" | sort\n"+
			"complete -p squeue", script, strings.Join(words, " "), len(words)-1, line, len(line)))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LC_ALL=C")
		out, _ := cmd.Output() // complete -p fails: squeue isn't ours here
		return string(out)
	}
	for _, c := range []struct{ line, words, want string }{
		{"gqueue --part", "gqueue --part", "compopt -o nospace\n--partition=\n"},
		{"gqueue --partition=ma", "gqueue --partition = ma", "main\nmain2\n"},
		{"gsubmit -d afterok:1", "gsubmit -d afterok : 1", "12\n"},
		{"gsubmit -o a", "gsubmit -o a", "compopt -o filenames\na file\nasked\n"},
	} {
		if got := ask(c.line, strings.Fields(c.words)); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(string(asked), "\n"); !slices.Contains(got, "gqueue --partition=ma") ||
		!slices.Contains(got, "gsubmit -d afterok:1") {
		t.Errorf("gcli was asked %q", got)
	}
}
