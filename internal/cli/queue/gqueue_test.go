package queue

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/client"
	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

func queueFake(t *testing.T) *clitest.Fake {
	f := clitest.New(t, Gqueue)
	f.Jobs = clitest.DemoJobs()
	f.Nodes = clitest.DemoNodes()
	return f
}

const squeueHead = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"

// TestQueueTables checks that the tables equal those of squeue 22.05 for the same jobs.
func TestQueueTables(t *testing.T) {
	f := queueFake(t)
	f.Want(squeueHead+
		"                15     batch    train     root CF       0:10      1 n3\n"+
		"                14     batch    train     root CG       0:10      1 n2\n"+
		"                17     batch    train     root PD       0:00      1 (Dependency)\n"+
		"              12_3     batch    train     root  R 1-01:01:01      1 n1\n"+
		"                16 batch,gpu    train     root PD       0:00      1 (JobHeldUser)\n"+
		"        12_[4-9%2]       gpu    train     root PD       0:00      1 (Priority)\n"+
		"                10       gpu    train     root PD       0:00      1 (Resources)\n"+
		"                11       gpu    train     root  R       1:05      2 g[1-2]\n", "", 0, "squeue")
	f.Want(""+
		"                19     batch    train     root CA       0:00      1 \n"+
		"                20     batch    train     root CD       1:00      1 n1\n"+
		"                15     batch    train     root CF       0:10      1 n3\n"+
		"                14     batch    train     root CG       0:10      1 n2\n"+
		"                18     batch    train     root  F       1:00      1 (NonZeroExitCode)\n"+
		"                17     batch    train     root PD       0:00      1 (Dependency)\n"+
		"              12_3     batch    train     root  R 1-01:01:01      1 n1\n"+
		"                16 batch,gpu    train     root PD       0:00      1 (JobHeldUser)\n"+
		"        12_[4-9%2]       gpu    train     root PD       0:00      1 (Priority)\n"+
		"                10       gpu    train     root PD       0:00      1 (Resources)\n"+
		"                11       gpu    train     root  R       1:05      2 g[1-2]\n", "", 0, "squeue", "-h", "-t", "all")
	f.Want(""+
		"                17     batch    train     root PD       0:00      1 (Dependency)\n"+
		"                16     batch    train     root PD       0:00      1 (JobHeldUser)\n"+
		"        12_[4-9%2]       gpu    train     root PD       0:00      1 (Priority)\n"+
		"                10       gpu    train     root PD       0:00      1 (Resources)\n"+
		"                16       gpu    train     root PD       0:00      1 (JobHeldUser)\n", "", 0, "gqueue", "-hP", "-tpd")
	f.Want("             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           "+
		"NODELIST(REASON)\n"+
		"                10       gpu    train     root PD                 N/A      1 (null)               (Resources)\n"+
		"        12_[4-9%2]       gpu    train     root PD                 N/A      1 (null)               (Priority)\n"+
		"                16 batch,gpu    train     root PD                 N/A      1 (null)               (JobHeldUser)\n"+
		"                17     batch    train     root PD                 N/A      1 (null)               (Dependency)\n",
		"", 0, "squeue", "--start")
	out, _, _ := f.Run("squeue", "-l", "-t", "R")
	if _, rest, _ := strings.Cut(out,
		"\n"); rest != "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES "+
		"NODELIST(REASON)\n"+
		"              12_3     batch    train     root  RUNNING 1-01:01:01 UNLIMITED      1 n1\n"+
		"                11       gpu    train     root  RUNNING       1:05   1:30:00      2 g[1-2]\n" {
		t.Errorf("-l:\n%s", out)
	}
}

// TestQueueFields checks that each letter prints the same as in squeue 22.05.
func TestQueueFields(t *testing.T) {
	f := queueFake(t)
	f.Want("JOBID|REASON|NODELIST(REASON)|EXEC_HOST|START_TIME|END_TIME|TIME|TIME_LEFT|TIME_LIMIT|PRIORITY|NICE|NODES|"+
		"CPUS|ARRAY_TASK_ID|ARRAY_JOB_ID|JOBID|DEPENDENCY|OVER_SUBSCRIBE|S:C:T|SOCKETS_PER_NODE|PRIORITY\n"+
		"19|None||n/a|2023-11-14T22:16:00|2023-11-14T22:16:00|0:00|1:30:00|1:30:00|150|0|1|4|N/A|19|19|(null)|OK|*:*:*|*|"+
		"0.00000003492460\n"+
		"20|None|n1|n1|2023-11-14T22:15:00|2023-11-14T22:16:00|1:00|1:29:00|1:30:00|150|0|1|4|N/A|20|20|(null)|OK|*:*:*|*|"+
		"0.00000003492460\n"+
		"18|NonZeroExitCode|(NonZeroExitCode)|n1|2023-11-14T22:15:00|2023-11-14T22:16:00|1:00|1:29:00|1:30:00|150|0|1|4|"+
		"N/A|18|18|(null)|OK|*:*:*|*|0.00000003492460\n"+
		"17|Dependency|(Dependency)|n/a|N/A|N/A|0:00|1:30:00|1:30:00|150|0|1|4|N/A|17|17|afterok:11(unfulfilled)|OK|*:*:*|"+
		"*|0.00000003492460\n"+
		"12_3|None|n1|n1|2023-11-15T00:58:59|NONE|1-01:01:01|UNLIMITED|UNLIMITED|200|0|1|4|3|12|13|(null)|OK|*:*:*|*|"+
		"0.00000004656613\n"+
		"16|JobHeldUser|(JobHeldUser)|n/a|N/A|N/A|0:00|1:30:00|1:30:00|0|5|1|4|N/A|16|16|(null)|OK|*:*:*|*|"+
		"0.00000000000000\n"+
		"12_[4-9%2]|Priority|(Priority)|n/a|N/A|N/A|0:00|1:30:00|1:30:00|200|0|1|4|4-9%2|12|12|(null)|OK|*:*:*|*|"+
		"0.00000004656613\n"+
		"10|Resources|(Resources)|n/a|N/A|N/A|0:00|1:30:00|1:30:00|100|0|1|4|N/A|10|10|(null)|OK|*:*:*|*|0.00000002328306\n"+
		"11|None|g[1-2]|g1|2023-11-16T01:58:55|2023-11-16T03:28:55|1:05|1:28:55|1:30:00|300|0|2|4|N/A|11|11|(null)|OK|"+
		"*:*:*|*|0.00000006984919\n",
		"", 0, "squeue", "-t", "CA,CD,F,PD,R", "-o", "%i|%r|%R|%B|%S|%e|%M|%L|%l|%Q|%y|%D|%C|%K|%F|%A|%E|%h|%z|%H|%p")
	f.Want("root 4G 1 /home/a/run.sh /home/a | 0 0 "+
		"2023-11-14T22:13:20|(null)|(null)|(null)|N/A|(null)|0|(null)|normal|root|physics|gres/gpu:a100:1\n", "", 0,
		"squeue", "-h", "-j11", "-o", "%u %m %c %o %Z %s| %G %U %V|%f|%k|%v|%X|%Y|%O|%W|%q|%g|%a|%b")
	f.Want("JOBID               TRES_ALLOC                              TRES_PER_NODE       TIME_LEFT           "+
		"PENDING_TIME        STDOUT              TASKS               CPUS_PER_TASK       REQUEUE             \n"+
		"11                  cpu=4,mem=8G,node=2,billing=4,gres/gpu=2gres/gpu:a100:1     1:28:55             99935         "+
		"      /home/a/slurm-%j.out4                   1                   1                   \n",
		"", 0, "squeue", "-t", "R", "-p", "gpu", "-O",
		"jobarrayid,tres-alloc:40,tres-per-node,timeleft,pendingtime,stdout,numtasks,cpus-per-task,requeue,")
	f.Want("/home/a/slurm-11.out\n", "", 0, "squeue", "-hj11", "--expand-patterns", "-O", "STDOUT:")
	// every field of every job, without an error
	all, errText, rc := f.Run("squeue", "-t", "all", "-r", "-O", "all")
	if rc != 0 || errText != "" || strings.Count(all, "\n") != 17 {
		t.Errorf("all: rc %d, %q, %d lines", rc, errText, strings.Count(all, "\n"))
	}
	letters, errText, rc := f.Run("squeue", "-t", "all", "-o", "%all")
	if rc != 0 || errText != "" || !strings.Contains(letters, "|") {
		t.Errorf("%%all: rc %d, %q", rc, errText)
	}
	golden.Compare(t, "testdata/squeue-all.txt", []byte(all+letters))
}

// TestQueueClients makes the calls of known programs, from CLI.md section 5.
func TestQueueClients(t *testing.T) {
	f := queueFake(t)
	f.Env["USER"] = "root"
	for _, c := range []struct {
		out  string
		args string
	}{
		{"15 CF|14 CG|17 PD|12_3 R|16 PD|12_[4-9%2] PD|10 PD|11 R|", "--noheader -o %i~%t -u root --only-job-state"},
		{"19|CANCELLED|20|COMPLETED|", "--format=%i|%T --states=CA,CD --noheader --name train"},
		{"15 CF 0:10|14 CG 0:10|17 PD 0:00|12_3 R 1-01:01:01|16 PD 0:00|12_[4-9%2] PD 0:00|10 PD 0:00|11 R 1:05|",
			"-h --format %i~%t~%M"},
		{"17 PD|10 PD|11 R|", "--noheader --format=%i~%t --job 10,11,17"},
		{"19|20|15|14|18|17|12_3|16|12_4|12_5|12_6|12_7|12_8|12_9|10|11|", "--me -o %i -h -r -t all"},
		{"PENDING n/a|", "-h -j 10 -o %T~%B"},
		{"RUNNING g1|", "-h -j 11 -o %T~%B"},
		{"RUNNING|", "-j 12_3 -h -o %T"},
		{"12_5|", "-j 12_5 -h -o %i"},
		{"12_[5-6%2]|", "-j 12_[5-6] -h -o %i"},
		{"12_3|12_5|", "-j 12_3,12_5 -h -o %i"},
		{" 17|physics|PENDING|4| 16|physics|PENDING|4| 10|physics|PENDING|4|", "-a -r -h -o~%A|%a|%T|%C -j 17,16,10"},
		{"17,PENDING,Dependency|16,PENDING,JobHeldUser|10,PENDING,Resources|", "-h -o %A,%T,%r --states=PD -j 10,16,17"},
		{"(null),11|", "--name=train --noheader --format=%k,%A -t R -p gpu"},
		{"11 R None|", "-O JobArrayID:~,StateCompact:~,Reason: -h -j 11 -t all --me"},
		{"RUNNING 11 11 root root physics 2023-11-16T01:58:55 2023-11-16T03:28:55 1:05 gpu 2 " +
			"cpu=4,mem=8G,node=2,billing=4,gres/gpu=2,gres/gpu:a100=2 g[1-2] train|",
			"-t RUNNING -h -p gpu -O " +
				"State:~,JobID:~,JobArrayID:~,UserName:~,GroupName:~,Account:~,StartTime:~,EndTime:~,TimeUsed:~,Partition:~," +
				"NumNodes:~,tres-alloc:~,NodeList:~,Name:"},
		{`{"a": "physics", "id": 10, "end_time": "N/A", "u": "root", "state": "PENDING", "p": "gpu", "cpu": 4, "mem": ` +
			`"4G", "array_id": "N/A", "r": "(Resources)"}|`,
			`--states=all -h -r -j 10 -o ` +
				`{"a":~"%a",~"id":~%A,~"end_time":~"%e",~"u":~"%u",~"state":~"%T",~"p":~"%P",~"cpu":~%C,~"mem":~"%m",` +
				`~"array_id":~"%K",~"r":~"%R"}`},
		{"physics\x1f11\x1fg1\x1f1                   4                   |",
			"--all --states=all --noconvert -h -j 11 -O Account:\x1f,JobID:\x1f,BatchHost:\x1f,MinCpus,NumCPUs,"},
		{"10^^^PD^^^Resources^^^n/a^^^root^^^1^^^4^^^(Resources)^^^gpu^^^1:30:00^^^0:00^^^N/A^^^train^^^2023-11-14T22:13:20|",
			"--noheader -o%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V --jobs=10,10"},
		{"", "-j 20"},                   // ended, and still known: the heading alone
		{"", "-j 999,1000 -h"},          // several unknown ones are no error
		{"11|", "-h -j 11.batch -o %i"}, // a step is its job
		{"4096M|", "-h -j 10 --noconvert -o %m"},
		{"1700000000|", "-h -j 10 -o %V"},
		{"10|", "-h -M demo -j 10 -o %i"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		if strings.HasPrefix(c.out, "1700") {
			f.Env["SLURM_TIME_FORMAT"] = "%s"
		}
		out, errText, rc := f.Run("squeue", args...)
		delete(f.Env, "SLURM_TIME_FORMAT")
		if !strings.Contains(c.args, "-h") && !strings.Contains(c.args, "--noheader") {
			out = strings.TrimPrefix(out, squeueHead)
		}
		if got := strings.ReplaceAll(out, "\n", "|"); got != c.out || errText != "" || rc != 0 {
			t.Errorf("squeue %q: rc %d, stderr %q\n got %q\nwant %q", args, rc, errText, got, c.out)
		}
	}
}

// TestQueueEnvironment checks that variables set options and that the command line overrides them.
func TestQueueEnvironment(t *testing.T) {
	f := queueFake(t)
	f.Env["SQUEUE_FORMAT"], f.Env["SQUEUE_STATES"], f.Env["SQUEUE_SORT"], f.Env["SQUEUE_PARTITION"] = "%i %t", "PD,R",
		"-i", "gpu"
	f.Want("JOBID ST\n16 PD\n12_[4-9%2] PD\n11 R\n10 PD\n", "", 0, "squeue")
	f.Want("JOBID               \n10                  \n11                  \n12                  \n"+
		"16                  \n", "", 0, "squeue", "-O", "jobid", "-S", "A")
	f.Env["SQUEUE_FORMAT2"], f.Env["SQUEUE_ARRAY"] = "JobArrayID:", "1"
	f.Want("12_4 PD\n12_5 PD\n12_6 PD\n12_7 PD\n12_8 PD\n12_9 PD\n", "", 0, "squeue", "-h", "-j", "12", "-t", "PD", "-S",
		"i") // SQUEUE_FORMAT goes before
	delete(f.Env, "SQUEUE_FORMAT")
	f.Want("12_4\n12_5\n12_6\n12_7\n12_8\n12_9\n", "", 0, "squeue", "-h", "-j", "12", "-t", "PD", "-S", "i")
}

func TestQueueErrors(t *testing.T) {
	f := queueFake(t)
	f.Want("", "slurm_load_jobs error: Invalid job id specified\n", 1, "squeue", "-j", "999")
	f.Want("", "squeue: error: Invalid job id: abc\n", 1, "squeue", "-j", "10,abc")
	f.Want(squeueHead, "squeue: error: Invalid user: no-such-user\n", 0, "squeue", "-u", "no-such-user")
	f.Want(squeueHead, "", 0, "squeue", "-j", "")
	f.Want(squeueHead, "", 0, "squeue", "-n", "")
	f.Want(squeueHead, "", 0, "squeue", "-t", "RESIZING")
	f.Want("", "squeue: error: Invalid node name zz\n", 1, "squeue", "-w", "n[1-2],zz")
	f.Want("", "squeue: error: Invalid sort specification: ?z\n", 1, "squeue", "-S", "?z")
	f.Want("10\n", "squeue: error: Invalid job format specification: foo\n", 0, "squeue", "-h", "-j10", "-O", "foo,jobid:")
	f.Want("", "squeue: error: Invalid --json specification: '31' is no version of the lists; there are v0.0.37, "+
		"v0.0.38, v0.0.39, v0.0.40, v0.0.41, v0.0.42, v0.0.43\n", 1, "squeue", "--json=31")
	f.Want("", "squeue: error: 'mars' can't be reached from here, or it is an invalid entry for --cluster: this is "+
		"demo; set GBATCH_CONF to the other cluster's configuration\n", 1, "squeue", "-M", "mars")
	if _, errText, rc := f.Run("squeue", "-t", "foo"); rc != 1 ||
		!strings.HasPrefix(errText,
			"squeue: error: Invalid job state specified: foo\nsqueue: error: Valid job states include: PENDING,") {
		t.Errorf("-t foo: %d %q", rc, errText)
	}
	if _, errText, rc := f.Run("squeue", "foo"); rc != 1 ||
		!strings.HasPrefix(errText, "squeue: error: Unrecognized option: foo\nUsage: squeue") {
		t.Errorf("foo: %d %q", rc, errText)
	}
	f.Fail[proto.KindJobs] = client.Unreachable("")
	f.Fail[proto.KindJobs].Code = proto.CodeInternal // fails at once; package client retries other errors
	f.Want("", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", 1, "squeue")
	f.Fail[proto.KindJobs] = rpc.Errorf(proto.CodeBusy, "more than 4 queries")
	f.Want("", "slurm_load_jobs error: more than 4 queries\n", 1, "squeue", "--json")
}

func TestQueueVersion(t *testing.T) {
	f := queueFake(t)
	f.Want("slurm 25.05.0\n", "", 0, "squeue", "-V")
	for _, name := range []string{"gqueue", "gacct", "ginfo", "gshare"} {
		if out, _, rc := f.Run(name, "--version"); rc != 0 || !strings.HasPrefix(out, "gbatch ") ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("%s --version: %d %q", name, rc, out)
		}
	}
}

func TestQueueHidden(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root sees jobs of hidden partitions; run as another user")
	}
	f := queueFake(t)
	f.Parts = []*model.Partition{{Name: "gpu", Hidden: true}, {Name: "batch"}}
	f.Want("12_3\n", "", 0, "squeue", "-h", "-t", "R", "-o", "%i")
	f.Want("12_3\n11\n", "", 0, "squeue", "-a", "-h", "-t", "R", "-o", "%i")
}

// TestQueueJSON checks the members that readers use. internal/cli/json_test.go checks the whole JSON.
func TestQueueJSON(t *testing.T) {
	f := queueFake(t)
	// torchx
	var q struct {
		Jobs []struct {
			State     []string `json:"job_state"`
			Name      string
			Command   string
			Cwd       string `json:"current_working_directory"`
			Resources *struct {
				Nodes struct {
					List       string
					Allocation []struct {
						Name   string
						Cpus   struct{ Used int }
						Memory struct{ Allocated int }
					}
				}
			} `json:"job_resources"`
		}
	}
	out, _, _ := f.Run("squeue", "--json", "-j", "11")
	if err := json.Unmarshal([]byte(out), &q); err != nil {
		t.Fatal(err)
	}
	if len(q.Jobs) != 1 || q.Jobs[0].State[0] != "RUNNING" || q.Jobs[0].Resources.Nodes.List != "g[1-2]" ||
		q.Jobs[0].Resources.Nodes.Allocation[1].Cpus.Used != 2 {
		t.Errorf("torchx: %+v", q)
	}
	out, _, _ = f.Run("squeue", "--json", "-j", "10")
	if err := json.Unmarshal([]byte(out), &q); err != nil || q.Jobs[0].Resources != nil {
		t.Errorf("torchx, pending: %v %+v", err, q)
	}
}

// TestQueueBatchFlag checks that an allocation of galloc has no batch script, in the columns and in JSON of every
// version.
func TestQueueBatchFlag(t *testing.T) {
	f := queueFake(t)
	for _, j := range f.Jobs {
		if j.ID == 11 {
			spec := *j.Spec
			more := spec.Extra()
			more.Interactive = true
			spec.More = &more
			j.Spec = &spec
		}
	}
	f.Want("10 1\n11 0\n", "", 0, "squeue", "-hj10,11", "-S", "i", "-O", "JobID:3,BatchFlag:1")
	for _, v := range []string{"v0.0.39", "v0.0.42"} {
		out, _, _ := f.Run("squeue", "-j10,11", "--json="+v)
		if strings.Count(out, `"batch_flag":true`) != 1 || strings.Count(out, `"batch_flag":false`) != 1 {
			t.Errorf("%s: %s", v, out)
		}
	}
}
