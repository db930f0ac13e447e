package acct

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

func acctFake(t *testing.T) *clitest.Fake {
	f := clitest.New(t, Gacct)
	f.Records = clitest.DemoRecords()
	return f
}

// TestAcctTables: the tables are those of sacct 22.05 for equal records.
func TestAcctTables(t *testing.T) {
	f := acctFake(t)
	f.Want(`JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
10                train        gpu    physics          2    PENDING      0:0 
12                train        gpu    physics          4  COMPLETED      0:0 
12.batch          batch               physics          2  COMPLETED      0:0 
13                train        gpu    physics          4     FAILED      3:0 
13.batch          batch               physics          2     FAILED      3:0 
14                train        gpu    physics          4 CANCELLED+      0:0 
14.batch          batch               physics          2  CANCELLED     0:15 
15                train        gpu    physics          2 CANCELLED+      0:0 
16                train        gpu    physics          4    TIMEOUT      0:0 
16.batch          batch               physics          2    TIMEOUT      0:0 
22                train        gpu    physics          2    PENDING      0:0 
20_1              train        gpu    physics          4 OUT_OF_ME+      0:9 
20_1.batch        batch               physics          2 OUT_OF_ME+      0:9 
20_3              train        gpu    physics          4  COMPLETED      0:0 
20_3.batch        batch               physics          2  COMPLETED      0:0 
20_[4-9%2]        train        gpu    physics          2    PENDING      0:0 
`, "", 0, "sacct")
	f.Want("JobID             State ExitCode \n------------ ---------- -------- \n13               FAILED      3:0 \n"+
		"13.batch         FAILED      3:0 \n", "", 0, "sacct", "-b", "-j", "13")
	f.Want("12           12            train   01:00:00 \n", "", 0, "sacct", "-nX", "-j", "12", "-o",
		"jobid,jobidraw,jobname%6,elapsed", "--name=x", "-o", "")
}

// TestAcctFields: a finished job and its batch step, field by field as sacct 22.05 prints them.
func TestAcctFields(t *testing.T) {
	f := acctFake(t)
	out, errText, rc := f.Run("sacct", "-P", "-j", "12,15,10", "-o", "all")
	if rc != 0 || errText != "" {
		t.Fatalf("rc %d %q", rc, errText)
	}
	rows := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	names := strings.Split(rows[0], "|")
	// by field: the job, its batch step, one that was cancelled while it waited
	want := map[string]string{
		"AllocCPUS": "4|2|2", "AllocNodes": "2|1|0",
		"AllocTRES": "billing=4,cpu=4,gres/gpu=2,mem=8G,node=2|cpu=2,gres/gpu=1,mem=4G,node=1|",
		"AveCPU":    "|00:00:13|", "AveCPUFreq": "|0|", "AveRSS": "|12345K|", "Cluster": "demo|demo|demo",
		"ConsumedEnergy": "|0|0",
		"CPUTime":        "04:00:00|02:00:00|00:00:00", "CPUTimeRAW": "14400|7200|0", "DerivedExitCode": "0:0||0:0",
		"Elapsed":    "01:00:00|01:00:00|00:00:00",
		"ElapsedRaw": "3600|3600|0", "Eligible": "2023-11-14T22:13:20|2023-11-14T22:15:00|2023-11-14T22:13:20",
		"End": "2023-11-14T23:15:00|2023-11-14T23:15:00|2023-11-14T22:14:10", "ExitCode": "0:0|0:0|0:0", "GID": "100||100",
		"Group": "users||users",
		"JobID": "12|12.batch|15", "JobIDRaw": "12|12.batch|15", "JobName": "train|batch|train", "Layout": "|Unknown|",
		"MaxRSS":     "|12345K|",
		"MaxRSSNode": "|n1|", "MaxRSSTask": "|0|", "MinCPU": "|00:00:13|", "NCPUS": "4|2|2", "NNodes": "2|1|1",
		"NodeList": "n[1-2]|n1|None assigned",
		"NTasks":   "|1|", "Partition": "gpu||gpu", "Priority": "4294901||4294901", "QOS": "normal||normal",
		"Reason":     "None||None",
		"ReqCPUFreq": "Unknown|0|Unknown", "ReqCPUS": "2|2|2",
		"ReqTRES": "billing=2,cpu=2,gres/gpu=1,mem=8G,node=2||billing=2,cpu=2,gres/gpu=1,mem=4G,node=1",
		"ReqMem":  "8G||4G", "Reserved": "00:01:40||00:00:50", "ResvCPU": "00:03:20||00:01:40", "ResvCPURAW": "200||100",
		"Planned":    "00:01:40||00:00:50",
		"Start":      "2023-11-14T22:15:00|2023-11-14T22:15:00|2023-11-14T22:14:10",
		"State":      "COMPLETED|COMPLETED|CANCELLED by 1001",
		"Submit":     "2023-11-14T22:13:20|2023-11-14T22:15:00|2023-11-14T22:13:20",
		"SubmitLine": "sbatch run.sh||sbatch run.sh", "Suspended": "00:00:00|00:00:00|00:00:00",
		"SystemCPU": "00:01.002|00:01.002|00:00:00",
		"Timelimit": "01:00:00||01:00:00", "TimelimitRaw": "60||60", "TotalCPU": "00:13.347|00:13.347|00:00:00",
		"UserCPU":            "00:12.345|00:12.345|00:00:00",
		"TRESUsageInMax":     "|cpu=00:00:13,energy=0,fs/disk=0,mem=12345K,pages=0|",
		"TRESUsageInMaxNode": "|cpu=n1,energy=n1,fs/disk=n1,mem=n1,pages=n1|", "UID": "1001||1001", "User": "alice||alice",
		"WCKeyID": "0||0", "WorkDir": "/home/alice||/home/alice",
		"StdOut": "slurm-%j.out||slurm-%j.out", "Restarts": "0||0",
	}
	cells := [][]string{strings.Split(rows[2], "|"), strings.Split(rows[3], "|"), strings.Split(rows[4], "|")}
	for i, n := range names {
		if w, ok := want[n]; ok {
			if got := cells[0][i] + "|" + cells[1][i] + "|" + cells[2][i]; got != w {
				t.Errorf("%s: %s, want %s", n, got, w)
			}
			delete(want, n)
		}
	}
	if len(want) > 0 {
		t.Errorf("not printed: %v", want)
	}
	help, _, _ := f.Run("sacct", "--helpformat")
	golden.Compare(t, "testdata/sacct-helpformat.txt", []byte(help))
	if got := strings.Fields(help); len(got) != len(names) {
		t.Errorf("--helpformat has %d fields, all prints %d", len(got), len(names))
	}
	long, errText, rc := f.Run("sacct", "-l", "-P", "-j", "12")
	if rc != 0 || errText != "" || strings.Count(long, "\n") != 3 {
		t.Errorf("-l: %d %q %q", rc, errText, long)
	}
}

// TestAcctClients: the calls that programs make, from CLI.md section 7.
func TestAcctClients(t *testing.T) {
	f := acctFake(t)
	for _, c := range []struct{ args, want string }{
		{"-o JobID,State,NodeList --parsable2 -j 12 -j 20", "JobID|State|NodeList\n12|COMPLETED|n[1-2]\n" +
			"12.batch|COMPLETED|n1\n20_1|OUT_OF_MEMORY|n[1-2]\n20_1.batch|OUT_OF_MEMORY|n1\n20_3|COMPLETED|n[1-2]\n" +
			"20_3.batch|COMPLETED|n1\n20_[4-9%2]|PENDING|None assigned\n"},
		{"-X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime 2026-11-18T10:00 --endtime " +
			"now --name u -j 13", "13|FAILED\n"},
		{"-j 12 -n -X -o nodelist%-10", "n[1-2]     \n"},
		{"-j 12.0 --format=Reason --noheader", ""},
		{"-j 12.batch -n -P -o jobid", "12.batch\n"},
		{"-n -j 13,14 --format JobIDRaw,State,ExitCode -P -S 2023-11-14 -E now",
			"13|FAILED|3:0\n13.batch|FAILED|3:0\n14|CANCELLED by 1001|0:0\n14.batch|CANCELLED|0:15\n"},
		{"-X --noheader --format=jobid,state%20 --job 12,13",
			"12                      COMPLETED \n13                         FAILED \n"},
		{"-P --delimiter \x1f -n --units G --allocations -o User,Group,JobId,ReqMem,TotalCPU,MaxRSS,Submit,ReqTRES -j 12",
			"alice\x1fusers\x1f12\x1f8G\x1f00:13.347\x1f\x1f2023-11-14T22:13:20\x1fbilling=2,cpu=2,gres/gpu=1,mem=8G,node=2\n"},
		{"-P -n --units=G -o maxrss -j 12", "\n0.01G\n"},
		{"--parsable -n --delimiter=^|^ --format=JobID,JobIDRaw,State --jobs=20_3 --partition= --cluster=demo",
			"20_3^|^21^|^COMPLETED^|^\n20_3.batch^|^21.batch^|^COMPLETED^|^\n"},
		{"--allusers --parsable2 --noheader --allocations --duplicates --clusters demo --format " +
			"jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state," +
			"nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname -j 13",
			"13|13|demo|gpu|normal|physics|users|100|alice|1001|2023-11-14T22:13:20|2023-11-14T22:13:20|2023-11-14T22:15:00|" +
				"2023-11-14T22:16:00|00:01:00|3:0|FAILED|2|4|2|8G|billing=2,cpu=2,gres/gpu=1,mem=8G,node=2|billing=4,cpu=4," +
				"gres/gpu=2,mem=8G,node=2|01:00:00|n[1-2]|train\n"},
		{"-a -X --format=AllocTRES --noheader --parsable2 -j 12", "billing=4,cpu=4,gres/gpu=2,mem=8G,node=2\n"},
		{"-np -X -o jobid,end -j 16 -s CD,CA,F,NF,TO", "16|2023-11-15T23:16:00|\n"},
		{"--parsable2 -j 999", "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n"},
		{"-n -X -j 12 -o state,jobid -o exitcode -P", "COMPLETED|12|0:0\n"},
		{"-n -X -i 2 -P -o jobid -j 12,15,22", "12\n22\n"},
		{"-n -X -j ", ""},
		{"--noconvert -nXP -j 12 -o reqmem,alloctres", "8192M|billing=4,cpu=4,gres/gpu=2,mem=8192M,node=2\n"},
	} {
		args := strings.Split(c.args, " ")
		out, errText, rc := f.Run("sacct", args...)
		if out != c.want || errText != "" || rc != 0 {
			t.Errorf("sacct %q: rc %d, stderr %q\n got %q\nwant %q", args, rc, errText, out, c.want)
		}
	}
	f.Env["SLURM_TIME_FORMAT"] = "%s"
	f.Want("JobIDRaw|Start|End|Cluster|AllocTRES|AdminComment|User|Account|State|NNodes|NCPUS|ReqMem|QOS|Partition|"+
		"TimelimitRaw|JobName\n"+
		"10|Unknown|Unknown|demo|||alice|physics|PENDING|1|2|4G|normal|gpu|60|train\n", "", 0, "sacct", "-P", "-X", "-o",
		"jobidraw,start,end,cluster,alloctres,admincomment,user,account,state,nnodes,ncpus,reqmem,qos,partition,"+
			"timelimitraw,jobname", "-j", "10")
	delete(f.Env, "SLURM_TIME_FORMAT")
	f.Env["SACCT_FORMAT"] = "jobid"
	f.Want("13\n", "", 0, "sacct", "-nXP", "-j", "13")
	f.Want("13|FAILED|3:0\n", "", 0, "sacct", "-nXPb", "-j", "13")
	f.Scripts = map[model.JobID]string{13: "#!/bin/sh\nexit 3"}
	f.Want("Batch Script for 13\n"+strings.Repeat("-", 80)+"\n#!/bin/sh\nexit 3\n\nBatch Script for 15\n"+
		strings.Repeat("-", 80)+"\nNONE\n\n", "", 0, "sacct", "-B", "-j", "13,15")
}

// TestAcctWindow: the time window that each command line asks for.
func TestAcctWindow(t *testing.T) {
	f := acctFake(t)
	now := time.Now()
	midnight := model.Time(time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC).UnixMilli())
	old := model.Time(time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC).UnixMilli())
	for _, c := range []struct {
		args       string
		start, end model.Time // 1: about now
	}{
		{"", midnight, 0},
		{"-j 12", 0, 0},
		{"-S 2023-11-14", old, 0},
		{"-S 2023-11-14 -E 2023-11-14T00:00:00", old, old},
		{"-E 2023-11-14", 0, old},
		{"-s R", 1, 1},
		{"-s F,TO", midnight, 0},
		{"-s all", midnight, 0},
		{"-s R -j 12", 0, 0},
		{"-s R -S 2023-11-14", old, 0},
	} {
		if _, errText, rc := f.Run("sacct", strings.Fields(c.args)...); rc != 0 || errText != "" {
			t.Errorf("%q: %d %q", c.args, rc, errText)
			continue
		}
		q := f.AccQ[len(f.AccQ)-1]
		about := func(got, want model.Time) bool {
			return got == want || want == 1 && got >= model.Time(now.UnixMilli()) && got < model.Time(now.UnixMilli())+60_000
		}
		if !about(q.Start, c.start) || !about(q.End, c.end) {
			t.Errorf("%q: from %d to %d, want %d to %d", c.args, q.Start, q.End, c.start, c.end)
		}
	}
}

func TestAcctErrors(t *testing.T) {
	f := acctFake(t)
	f.Want("", "sacct: fatal: Invalid field requested: \"x\"\n", 1, "sacct", "-o", "jobid,x")
	f.Want("", "sacct: fatal: Invalid field requested: \"jbid\" (did you mean JobID?)\n", 1, "sacct", "-o", "jbid")
	f.Want("", "sacct: fatal: Bad job/step specified: abc\n", 1, "sacct", "-j", "12,abc")
	f.Want("", "sacct: fatal: unrecognized job state value 'foo'\n", 1, "sacct", "-s", "R,foo")
	f.Want("", "sacct: error: Invalid user id: no-such-user\n", 1, "sacct", "-u", "no-such-user")
	f.Want("", "sacct: error: Invalid group id: no-such-group\n", 1, "sacct", "-g", "no-such-group")
	f.Want("", "sacct: fatal: Invalid unit type 'X'. Possible options are 'KMGTP'\n", 1, "sacct", "--units=X")
	f.Want("", "sacct: fatal: When requesting job scripts you must also request specific jobs with the '-j' option.\n", 1,
		"sacct", "-B")
	f.Want("", "sacct: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.\n",
		1, "sacct", "-l", "-o", "jobid")
	f.Want("", "sacct: error: Unknown arguments:\nsacct: error:  foo\n", 1, "sacct", "foo")
	f.Want("", "sacct: error: Start time (2023-11-15T00:00:00) requested is after end time (2023-11-14T00:00:00).\n", 1,
		"sacct", "-S", "2023-11-15", "-E", "2023-11-14")
	if _, errText, rc := f.Run("sacct", "-S", "foo"); rc != 1 ||
		!strings.HasPrefix(errText, "sacct: error: Invalid time specification: invalid date \"foo\"") {
		t.Errorf("-S foo: %d %q", rc, errText)
	}
	f.Want("", "sacct: error: --completion is not supported by gbatch yet: leave it out: every record is in accounting\n",
		1, "sacct", "-c")
	f.Fail[proto.KindAcct] = rpc.Errorf(proto.CodeNoAccounting,
		"the accounting daemon at db:7 does not answer; jobs go on, and their records arrive once it is back")
	f.Want("", "sacct: error: Problem talking to the database: the accounting daemon at db:7 does not answer; jobs go "+
		"on, and their records arrive once it is back\n", 1, "sacct", "-n")
	out, errText, rc := f.Run("sacct", "-X")
	if rc != 1 || out != "" || !strings.Contains(errText, "does not answer") {
		t.Errorf("away: %d %q %q", rc, out, errText)
	}
}

func TestAcctJSON(t *testing.T) {
	f := acctFake(t)
	var q struct { // torchx: a word up to 23.02, a list since
		Jobs []struct {
			State struct{ Current []string }
		}
	}
	out, _, _ := f.Run("sacct", "--json", "-S1970-01-01-00:00:01", "-j", "13")
	if err := json.Unmarshal([]byte(out), &q); err != nil || len(q.Jobs) != 1 || q.Jobs[0].State.Current[0] != "FAILED" {
		t.Errorf("%v %+v", err, q)
	}
}
