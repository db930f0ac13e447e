package info

import (
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/golden"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

func infoFake(t *testing.T) *clitest.Fake {
	f := clitest.New(t, Ginfo)
	f.Nodes, f.Parts = clitest.DemoNodes(), clitest.DemoParts()
	return f
}

// TestInfoTables checks that the tables equal those of sinfo 22.05 for the same nodes.
func TestInfoTables(t *testing.T) {
	f := infoFake(t)
	f.Want(`PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
batch*       up 1-00:00:00      1  drain n4
batch*       up 1-00:00:00      1    mix n2
batch*       up 1-00:00:00      1  alloc n3
batch*       up 1-00:00:00      1   idle n1
gpu          up   infinite      1   drng g1
gpu          up   infinite      1   idle g2
all       drain    1:30:00      1  down* bad1
all       drain    1:30:00      1   drng g1
all       drain    1:30:00      1  drain n4
all       drain    1:30:00      1    mix n2
all       drain    1:30:00      1  alloc n3
all       drain    1:30:00      2   idle g2,n1
empty      down    1:30:00      0    n/a 
`, "", 0, "sinfo")
	f.Want(`PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
batch*       up 1-00:00:00          2/1/1/4 n[1-4]
gpu          up   infinite          1/1/0/2 g[1-2]
all       drain    1:30:00          3/2/2/7 bad1,g[1-2],n[1-4]
empty      down    1:30:00          0/0/0/0 
`, "", 0, "sinfo", "-s")
	f.Want(`NODELIST   NODES PARTITION STATE 
bad1           1       all down* 
g1             1       gpu drng  
g1             1       all drng  
g2             1       gpu idle  
g2             1       all idle  
n1             1    batch* idle  
n1             1       all idle  
n2             1    batch* mix   
n2             1       all mix   
n3             1    batch* alloc 
n3             1       all alloc 
n4             1    batch* drain 
n4             1       all drain 
`, "", 0, "sinfo", "-N")
	f.Want(`REASON               USER      TIMESTAMP           NODELIST
bad disk in slot 4 o root      2023-11-14T22:13:23 n4
fan                  root      2023-11-14T22:13:24 g1
Not responding       root      2023-11-14T22:13:26 bad1
`, "", 0, "sinfo", "-R")
	f.Want(`NODELIST   NODES PARTITION STATE 
bad1           1       all down* 
g1             1       gpu drng  
g1             1       all drng  
n4             1    batch* drain 
n4             1       all drain 
`, "", 0, "sinfo", "-NR")
	out, _, _ := f.Run("sinfo", "-Nl", "-p", "gpu")
	if _, rest, _ := strings.Cut(out,
		"\n"); rest != `NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              
g1             1       gpu    draining 16     1:16:1  64000        0      1 a100,nvl fan                 
g2             1       gpu        idle 16     1:16:1  64000        0      1 a100,nvl none                
` {
		t.Errorf("-Nl:\n%s", out)
	}
	out, _, _ = f.Run("sinfo", "-lR")
	if _, rest, _ := strings.Cut(out, "\n"); rest != `REASON               USER         TIMESTAMP           STATE  NODELIST
bad disk in slot 4 o root(0)      2023-11-14T22:13:23 drain  n4
fan                  root(0)      2023-11-14T22:13:24 drng   g1
Not responding       root(0)      2023-11-14T22:13:26 down*  bad1
` {
		t.Errorf("-lR:\n%s", out)
	}
	out, _, _ = f.Run("sinfo", "-l", "-p", "gpu,empty")
	if _, rest, _ := strings.Cut(out,
		"\n"); rest != `PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST
gpu          up   infinite        1-2   no       NO        all      1    draining             g1
gpu          up   infinite        1-2   no       NO        all      1        idle             g2
empty      down    1:30:00 1-infinite   no  FORCE:4        all      0         n/a             
` {
		t.Errorf("-l:\n%s", out)
	}
}

// TestInfoFilters checks that filters work as in sinfo 22.05.
func TestInfoFilters(t *testing.T) {
	f := infoFake(t)
	const head = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
	for _, c := range []struct{ args, want string }{
		{"-t drain", head + "batch*       up 1-00:00:00      1  drain n4\ngpu          up   infinite      1   drng g1\n" +
			"all       drain    1:30:00      1   drng g1\nall       drain    1:30:00      1  drain n4\n" +
			"empty      down    1:30:00      0    n/a \n"},
		{"-N -h -t down", "bad1           1       all down* \n"},
		{"-N -h -t down,fail,unknown", "bad1           1       all down* \n"},
		{"-n n2", head + "batch*       up 1-00:00:00      1    mix n2\ngpu          up   infinite      0    n/a \n" +
			"all       drain    1:30:00      1    mix n2\nempty      down    1:30:00      0    n/a \n"},
		{"-d", head + "batch*       up 1-00:00:00      0    n/a \ngpu          up   infinite      0    n/a \n" +
			"all       drain    1:30:00      1  down* bad1\nempty      down    1:30:00      0    n/a \n"},
		{"-p nosuch", head},
		{"-p gpu", head + "gpu          up   infinite      1   drng g1\ngpu          up   infinite      1   idle g2\n"},
		{"-o %t|%T -t alloc", "STATE|STATE\nmix|mixed\nalloc|allocated\ndrng|draining\n"},
		{"-t idle,mix -h -o %n", "n4\nn2\nn1\ng1\ng2\n"},
		{"-h -t DRAIN&IDLE -p batch,all",
			"batch*       up 1-00:00:00      1  drain n4\nall       drain    1:30:00      1  drain n4\n"},
		{"-N -n n4 --list-reasons -h", "n4             1    batch* drain \nn4             1       all drain \n"},
	} {
		f.Want(c.want, "", 0, "sinfo", strings.Fields(c.args)...)
	}
	f.Want("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"+
		"all       drain    1:30:00      2   idle g2,n1\n"+
		"all       drain    1:30:00      1  drain n4\n"+
		"batch*       up 1-00:00:00      1   idle n1\n"+
		"batch*       up 1-00:00:00      1  drain n4\n", "", 0, "sinfo", "-S", "-D,P,t", "-n", "g2,n1,n4", "-t", "mix", "-p",
		"batch,all", "-o",
		"%#P %.5a %.10l %.6D %.6t %N", "-t", "idle,drained") // the last -t counts
}

// TestInfoClients makes the calls of known programs, from CLI.md section 8.
func TestInfoClients(t *testing.T) {
	f := infoFake(t)
	for _, c := range []struct{ args, want string }{
		{"-o %P", "PARTITION|batch*|gpu|all|empty|"},
		{"-a -o %P~%G~%l~%p~%c~%m", "PARTITION GRES TIMELIMIT PRIO_TIER CPUS MEMORY|batch* (null) 1-00:00:00 1 4 8000+|gpu " +
			"gpu:a100:8 infinite 1 16 64000|all gpu:a100:8 1:30:00 1 16 64000|all (null) 1:30:00 1 4 8000+|empty " +
			"(null) 1:30:00 1 0 0|"},
		{"-aho %F/%C", "3/2/2/7/13/23/16/52|"},
		{"-o %C~%F~%A~%D", "CPUS(A/I/O/T) NODES(A/I/O/T) NODES(A/I) NODES|13/23/16/52 3/2/2/7 3/2 7|"},
		{"-ahNO nodehost:5,gres:12,gresused:22,statelong -p gpu", "g1   gpu:a100:8  gpu:a100:3(IDX:0-2)   draining         " +
			"   |g2   gpu:a100:8  gpu:a100:0(IDX:N/A)   idle                |"},
		{"-ho \x1e%c\x1f%n\x1f%f -p gpu", "\x1e16\x1fg1\x1fa100,nvlink|\x1e16\x1fg2\x1fa100,nvlink|"},
		{"--format %P,%m --noconvert", "PARTITION,MEMORY|batch*,8000+|gpu,64000|all,8000+|empty,0|"},
		{"-h -o~%C", " 13/23/16/52|"},
		{"-h -o~\"%n~%G\" -p gpu", " \"g1 gpu:a100:8\"| \"g2 gpu:a100:8\"|"},
		{"-h -o%R,%C", "batch,5/7/4/16|gpu,8/16/8/32|all,13/23/16/52|empty,0/0/0/0|"},
		{"-h -o %D,%T -p gpu", "1,draining|1,idle|"},
		{"-o %R|%m|%c|%e|%O|%C", "PARTITION|MEMORY|CPUS|FREE_MEM|CPU_LOAD|CPUS(A/I/O/T)|batch|8000+|4|1000-1003|1.50-1.53|" +
			"5/7/4/16|gpu|64000|16|1004-1005|1.54-1.55|8/16/8/32|all|8000+|4+|1000-N/A|1.50-N/A|13/23/16/52|empty|0|0|0|0.00|" +
			"0/0/0/0|"},
		{"-e -o %R|%m|%c|%e|%O|%C -p batch", "PARTITION|MEMORY|CPUS|FREE_MEM|CPU_LOAD|CPUS(A/I/O/T)|batch|8030|4|1003|1.53|" +
			"0/0/4/4|batch|8010|4|1001|1.51|1/3/0/4|batch|8020|4|1002|1.52|4/0/0/4|batch|8000|4|1000|1.50|0/4/0/4|"},
		{"-o %P~%L~%l~%s~%h~%B~%I~%p~%M~%S", "PARTITION DEFAULTTIME TIMELIMIT JOB_SIZE OVERSUBSCRIBE MAX_CPUS_PER_NODE " +
			"PRIO_JOB_FACTOR PRIO_TIER PREEMPT_MODE ALLOCNODES|batch* n/a 1-00:00:00 1-infinite NO UNLIMITED 1 1 OFF all|gpu " +
			"1:00:00 infinite 1-2 NO UNLIMITED 1 1 OFF all|all n/a 1:30:00 1-infinite EXCLUSIVE UNLIMITED 1 1 OFF all|empty " +
			"n/a 1:30:00 1-infinite FORCE:4 UNLIMITED 1 1 OFF all|"},
		{"-o %n~%P -p batch,empty", "HOSTNAMES PARTITION|n4 batch*|n2 batch*|n3 batch*|n1 batch*| empty|"},
		{"-o %E|%u|%U|%H|%N", "REASON|USER|USER|TIMESTAMP|NODELIST|bad disk in slot 4 of the " +
			"chassis|root|root(0)|2023-11-14T22:13:23|n4|none|Unknown|Unknown|Unknown|g2,n[1-3]|fan|root|root(0)|" +
			"2023-11-14T22:13:24|g1|Not responding|root|root(0)|2023-11-14T22:13:26|bad1|"},
		{"-O statecomplete,nodelist", "STATECOMPLETE       NODELIST            |idle+drain          n4                  " +
			"|mixed               n2                  |allocated           n3                  |idle                g2,n1     " +
			"          |mixed+drain         g1                  |down+not_responding bad1                |"},
		{"-h -N -O NodeList:5,AllocMem:5,Memory:6,CPUsState:9,StateLong: -p gpu,batch",
			"g1   8000 64000 8/0/8/16 draining|g2   0    64000 0/16/0/16idle|n1   0    8000  0/4/0/4  idle|n2   1000 8010  " +
				"1/3/0/4  mixed|n3   4000 8020  4/0/0/4  allocated|n4   0    8030  0/0/4/4  drained|"},
		{"--noheader --exact -p gpu -O " +
			"PartitionName:.,Available:~,Nodes:~,DefaultTime:~,Size:~,Gres:~,Root:~,NodeList:~,Cluster:,StateLong:~",
			"gpuup 1 1:00:00 1-2 gpu:a100:8 no g1 N/Adraining |gpuup 1 1:00:00 1-2 gpu:a100:8 no g2 N/Aidle |"},
		{"-h -O PartitionName:.", "batch|gpu|all|empty|"},
		{"-h -o %z~%X~%Y~%Z~%w~%d~%v", "1:4+:1 1 4+ 1 1 0 22.05|"},
		{`-h -p empty -o {"s":~"%T",~"mem":~%m,~"n":~"%n",~"l":~"%O",~"p":~"%R",~"fmem":~"%e",~"cstate":~"%C",~"w":~%w}`,
			`{"s": "n/a", "mem": 0, "n": "", "l": "0.00", "p": "empty", "fmem": "0", "cstate": "0/0/0/0", "w": 0}|`},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		out, errText, rc := f.Run("sinfo", args...)
		if got := strings.ReplaceAll(out, "\n", "|"); got != c.want || errText != "" || rc != 0 {
			t.Errorf("sinfo %q: rc %d, stderr %q\n got %q\nwant %q", args, rc, errText, got, c.want)
		}
	}
}

// The beginning of a state is enough.
func TestWholeState(t *testing.T) {
	for word, want := range map[string]string{"i": "idle", "id": "idle", "al": "alloc", "mi": "mix", "drai": "drain",
		"draini": "draining", "dow": "down", "unkn": "unknown", "~i": "~idle", "all": "all", "comple": "completing",
		"powering_u": "powering_up", "foo": "foo", "": "", "~": "~"} {
		if got := wholeState(word); got != want {
			t.Errorf("wholeState(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestInfoErrors(t *testing.T) {
	f := infoFake(t)
	if _, errText, rc := f.Run("sinfo", "-t", "foo"); rc != 1 ||
		!strings.HasPrefix(errText, "sinfo: error: Bad state string: \"foo\"\nsinfo: error: valid states: all,alloc") {
		t.Errorf("-t foo: %d %q", rc, errText)
	}
	f.Want("", "slurm_load_node error: node is not defined\n", 1, "ginfo", "-n", "zz")
	f.Want("", "sinfo: error: Invalid sort specification: ?z\n", 1, "sinfo", "-S", "?z")
	f.Want("", "sinfo: error: Unrecognized option: foo; pick lines with --partition, --nodes and --states\n", 1,
		"sinfo", "foo")
	f.Want("batch*\n", "sinfo: error: Invalid node format specification: foo\n", 0, "sinfo", "-h", "-p", "batch", "-O",
		"foo,partition:")
	f.Fail[proto.KindPartitions] = rpc.Errorf(proto.CodeInternal, "Unable to contact slurm controller (connect failure)")
	f.Want("", "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n", 1, "sinfo")
}

func TestInfoAllFields(t *testing.T) {
	f := infoFake(t)
	all, errText, rc := f.Run("sinfo", "-O", "all")
	if rc != 0 || errText != "" {
		t.Errorf("all: %d %q", rc, errText)
	}
	golden.Compare(t, "testdata/sinfo-all.txt", []byte(all))
}
