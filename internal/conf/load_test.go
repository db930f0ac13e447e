package conf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"gbatch/internal/model"
)

// base is the least that loads without a word.
const base = `ClusterName=t
SlurmctldHost=ctl
NodeName=n[1-4] CPUs=4 RealMemory=8000
PartitionName=main Nodes=ALL Default=YES
`

// files makes a file system of a main file behind base, and others by name.
func files(main string, others ...string) fstest.MapFS {
	fsys := fstest.MapFS{MainFile: {Data: []byte(base + main)}}
	for i := 0; i+1 < len(others); i += 2 {
		fsys[others[i]] = &fstest.MapFile{Data: []byte(others[i+1])}
	}
	return fsys
}

// mustLoad loads what has no errors.
func mustLoad(t *testing.T, main string, others ...string) *Config {
	t.Helper()
	c, problems := LoadFS(files(main, others...), MainFile)
	if c == nil {
		t.Fatalf("refused: %s", lines(problems))
	}
	return c
}

func lines(problems []Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}

func TestBaseIsQuiet(t *testing.T) {
	c, problems := LoadFS(files(""), MainFile)
	if c == nil || len(problems) > 0 {
		t.Fatalf("%v", lines(problems))
	}
	if want := []Controller{{"ctl", "ctl:6817"}}; !slices.Equal(c.Controllers, want) {
		t.Errorf("controllers %v", c.Controllers)
	}
	if c.DbdAddr != "" || c.KillWaitS != 30 || c.MinJobAgeS != 300 || c.MaxArraySize != 1001 || c.SlurmdTimeoutS != 30 ||
		c.NodeHeartbeatIntervalS != 10 || !c.JobRequeue || c.LocalSocketDir != "/run/gbatch" || c.PKIDir != "pki" ||
		c.Scheduler.MaxScriptBytes != 4<<20 {
		t.Errorf("defaults: %+v", c)
	}
	for timeout, want := range map[string]int64{"5": 1, "20": 6, "300": 10} { // reports three times in a short one
		c, problems := LoadFS(files("SlurmdTimeout="+timeout), MainFile)
		if c == nil || len(problems) > 0 || c.NodeHeartbeatIntervalS != want {
			t.Errorf("SlurmdTimeout=%s: %v", timeout, lines(problems))
		}
	}
	p, _ := c.Partition("main")
	if len(p.Nodes) != 4 || p.MaxTimeS != model.Unlimited || p.DefaultTimeS != model.NotSet || !p.Default ||
		p.PriorityTier != 1 {
		t.Errorf("partition %+v", p)
	}
	if _, ok := c.Node("n4"); !ok {
		t.Error("n4 isn't there")
	}
}

// TestProblems: one additional or wrong line, and the one problem that it causes.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		// The lexer.
		{`Foo="a b`, `gbatch.conf:5: "Foo": the quote is never closed; write Foo="…"`},
		{`KillWait+=5`, `gbatch.conf:5: "KillWait": "+=" is not possible; write the whole value after =`},
		{`KillWait`, `gbatch.conf:5: "KillWait" is not key=value; write key=value, quotes around a value with blanks, or # ` +
			`in front of a comment`},
		{`= 5`, `gbatch.conf:5: "= 5" is not key=value; write key=value, quotes around a value with blanks, or # in ` +
			`front of a comment`},
		{"MailProg=/\xff", "gbatch.conf:5: \"MailProg\" holds bytes that aren't UTF-8; save the file as UTF-8"},
		{"Include", `gbatch.conf:5: Include names no file; write Include nodes.conf`},
		{"Include other.conf", `gbatch.conf:5: included file other.conf can't be read: file does not exist`},
		{"Include gbatch.conf", `gbatch.conf:5: Include "gbatch.conf": the file includes itself; remove this Include`},

		// Keys.
		{"KillWiat=30", `gbatch.conf:5: unknown key "KillWiat"; did you mean KillWait?`},
		{"SlurmctldHots=x", `gbatch.conf:5: unknown key "SlurmctldHots"; did you mean SlurmctldHost?`},
		{"Xyzzy=30", `gbatch.conf:5: unknown key "Xyzzy"; remove it`},
		{"ConstrainCores=yes", `gbatch.conf:5: misplaced key "ConstrainCores"; it belongs in cgroup.conf`},
		{"    RealMemory=1000", `gbatch.conf:5: misplaced key "RealMemory"; it belongs on a NodeName line; does the line ` +
			`above lack its trailing backslash?`},
		{"MaxTime=1:00", `gbatch.conf:5: misplaced key "MaxTime"; it belongs on a PartitionName line; does the line above ` +
			`lack its trailing backslash?`},
		{"File=/dev/nvidia0", `gbatch.conf:5: misplaced key "File"; it belongs in gres.conf`},
		{"KillWait=30\nkillwait=40", `gbatch.conf:6: warning: KillWait is set twice, first in line 5 of gbatch.conf; the ` +
			`last one is used; keep one of the lines`},

		// Values.
		{"KillWait=abc", `gbatch.conf:5: KillWait: "abc" is not a number of seconds from 0 to 65533; write KillWait=30`},
		{"KillWait=0:05:00",
			`gbatch.conf:5: KillWait: "0:05:00" is not a number of seconds from 0 to 65533; write KillWait=300`},
		{"JobRequeue=maybe", `gbatch.conf:5: JobRequeue: "maybe" is neither YES nor NO; write JobRequeue=YES or NO`},
		{"MaxJobCount=0", `gbatch.conf:5: MaxJobCount: "0" is not a whole number from 1 to 10000000; write ` +
			`MaxJobCount=10000`},
		{"MaxMemPerNode=4X",
			`gbatch.conf:5: MaxMemPerNode: "4X" is not a memory size; write MaxMemPerNode=MiB such as 4000, or 4G`},
		{"StateSaveLocation=var/x",
			`gbatch.conf:5: StateSaveLocation: "var/x" is not an absolute path; write StateSaveLocation=/var/x`},
		{"SelectType=select/cons",
			`gbatch.conf:5: SelectType: "select/cons" is not a known value; write SelectType=select/cons_tres`},
		{"SelectTypeParameters=CR_Core_Memroy",
			`gbatch.conf:5: SelectTypeParameters: "CR_Core_Memroy" is not a known value; write ` +
				`SelectTypeParameters=CR_CORE_MEMORY`},
		{"SelectTypeParameters=CR_Core,CR_CPU",
			`gbatch.conf:5: SelectTypeParameters: "CR_Core,CR_CPU" names two units of resources; write ` +
				`SelectTypeParameters=CR_Core_Memory`},
		{"PriorityMaxAge=1 day", `gbatch.conf:5: "day" is not key=value; write key=value, quotes around a value with ` +
			`blanks, or # in front of a comment`},
		{"PriorityMaxAge=1d", `gbatch.conf:5: PriorityMaxAge: "1d" is not a length of time; write PriorityMaxAge=minutes, ` +
			`hours:minutes:seconds or days-hours, such as 7-0`},
		{"PriorityWeightTRES=gpu=5", `gbatch.conf:5: PriorityWeightTRES: "gpu" is not a resource; write ` +
			`PriorityWeightTRES="CPU=1.0,Mem=0.25G,GRES/gpu=2.0"`},
		{"PriorityWeightTRES=cpu=1.2.3",
			`gbatch.conf:5: PriorityWeightTRES: the weight "1.2.3" of cpu is not a decimal number with at most six places; ` +
				`write PriorityWeightTRES="CPU=1.0,Mem=0.25G,GRES/gpu=2.0"`},
		{"AccountingStorageTRES=gpu",
			`gbatch.conf:5: AccountingStorageTRES: "gpu" is not a resource; write AccountingStorageTRES=cpu`},
		{"ClusterName=a/b", `gbatch.conf:5: warning: ClusterName is set twice, first in line 1 of gbatch.conf; the last ` +
			`one is used; keep one of the lines`},
		{"SlurmctldPort=6817-6820",
			`gbatch.conf:5: note: SlurmctldPort is one port here; the first of the range is taken; write SlurmctldPort=6817`},
		{"Licenses=a*x", `gbatch.conf:5: Licenses: "a*x" is not name*count; write Licenses=foo*4,bar`},
		{"bf_busy_nodes", `gbatch.conf:5: note: bf_busy_nodes is not a key but part of SchedulerParameters, and is read as ` +
			`if it were there; write SchedulerParameters=bf_busy_nodes`},
		{"bf_continue", `gbatch.conf:5: note: bf_continue is not a key but part of SchedulerParameters, and is read as if ` +
			`it were there; write SchedulerParameters=bf_continue`},
		{"bf_nonsense", `gbatch.conf:5: "bf_nonsense" is not key=value; write key=value, quotes around a value with ` +
			`blanks, or # in front of a comment`},
		{"NodeName=m1 State=FAIL\nPartitionName=m Nodes=m1",
			`gbatch.conf:5: note: State=FAIL is read as DRAIN: the node gets no new jobs, running jobs go on; write ` +
				`State=DRAIN, or State=DOWN where nothing may go on there`},
		{"SchedulerParameters=bf_continu",
			`gbatch.conf:5: SchedulerParameters: unknown parameter "bf_continu"; did you mean bf_continue?`},
		{"SchedulerParameters=fuzzlewuzz",
			`gbatch.conf:5: warning: SchedulerParameters: unknown parameter "fuzzlewuzz"; remove it`},
		{"SchedulerParameters=bf_interval=x",
			`gbatch.conf:5: SchedulerParameters: bf_interval="x" is not a whole number from -1 to 10800; write ` +
				`SchedulerParameters=bf_interval=30`},
		{"SchedulerParameters=defer=maybe",
			`gbatch.conf:5: SchedulerParameters: defer takes yes, no or no value, not "maybe"; write SchedulerParameters=defer`},
		{"bf_interval=60", `gbatch.conf:5: note: bf_interval is not a key but part of SchedulerParameters, and is read as ` +
			`if it were there; write SchedulerParameters=bf_interval=60`},
		{"HealthCheckProgram=x",
			`gbatch.conf:5: HealthCheckProgram: "x" is not an absolute path; write HealthCheckProgram=/x`},
		{"PrologFlags=Alloc,X11", ``},
		{"RequeueExit=1-9,18", ``},
		{"RequeueExit=300",
			`gbatch.conf:5: RequeueExit: 300 is no exit code: they go from 0 to 255; write RequeueExit=1-9,18`},
		{"RequeueExitHold=5-",
			`gbatch.conf:5: RequeueExitHold: "5-" is no list of exit codes and ranges of them; write RequeueExitHold=1-9,18`},
		{"SwitchType=switch/none", ``},
		{"Prolog=/etc/p", ``},
		{"InactiveLimit=0", ``},

		// Controllers and accounting.
		{"SlurmctldHost=ctl", `gbatch.conf:5: controller ctl is set twice, first in line 2; remove one of the lines`},
		{"SlurmctldHost=two",
			`gbatch.conf:5: warning: 2 controllers survive no more failures than 1: a majority must run; name 1 or 3`},
		{"SlurmctldHost=a(ctl) SlurmctldHost=b",
			`gbatch.conf:5: controllers ctl and a have the same address ctl:6817; give each its own address or port`},
		{"SlurmctldHost=a(",
			`gbatch.conf:5: SlurmctldHost: "a(" has no closing parenthesis; write SlurmctldHost=name(address)`},
		{"SlurmctldHost=a(1.2.3.4:x)",
			`gbatch.conf:5: SlurmctldHost: port "x" is not a whole number from 1 to 65535; write ` +
				`SlurmctldHost=name(address:6817)`},
		{"AccountingStorageEnforce=limits",
			`gbatch.conf:5: AccountingStorageEnforce=associations,limits needs a list of accounts; write ` +
				`AccountingStorageHost=…, or Accounts=…`},
		{"Accounts=a,b DefaultAccount=c", `gbatch.conf:5: DefaultAccount=c is not in Accounts; add it to Accounts`},
		{"ControllerHeartbeatTimeout=20", `gbatch.conf:5: ControllerHeartbeatTimeout=20: fewer than 50 milliseconds pass ` +
			`in any pause of a disk; write ControllerHeartbeatTimeout=50, or 0 for the default`},
		{"ControllerHeartbeatTimeout=900 ControllerElectionTimeout=800", `gbatch.conf:5: ControllerElectionTimeout=800 is ` +
			`less than ControllerHeartbeatTimeout=900; write ControllerElectionTimeout=900`},
		{"SlurmdTimeout=10 NodeHeartbeatInterval=10", `gbatch.conf:5: NodeHeartbeatInterval=10 is not less than ` +
			`SlurmdTimeout=10: every node would be declared DOWN; write NodeHeartbeatInterval=3`},

		// Unset.
		{"Unset", `gbatch.conf:5: Unset names no setting; write Unset SlurmctldHost`},
		{"Unset KillWiat", `gbatch.conf:5: Unset: "KillWiat" is not a setting; write Unset KillWait`},
		{"KillWait=x\nUnset KillWait", ``},

		// Plugins with and without their kind, and old ones.
		{"TaskPlugin=affinity,cgroup", ``},
		{"SwitchType=none", ``},
		{"AccountingStorageType=accounting_storage/mysql",
			`gbatch.conf:5: note: AccountingStorageType=accounting_storage/mysql is taken as accounting_storage/slurmdbd: ` +
				`gdbd keeps the records in its own database; write accounting_storage/slurmdbd`},
		{"AccountingStorageType=oracle",
			`gbatch.conf:5: AccountingStorageType: "oracle" is not a known value; write ` +
				`AccountingStorageType=accounting_storage/slurmdbd or accounting_storage/none`},

		// Nodes.
		{"NodeName=n4 CPUs=1",
			`gbatch.conf:5: node n4 is defined twice, first in line 3 of gbatch.conf; remove it from one of the lines`},
		{"NodeName=ALL CPUs=1", `gbatch.conf:5: NodeName=ALL is reserved for partitions; choose another name`},
		{"NodeName=m$ CPUs=1", `gbatch.conf:5: "m$" is not a valid node name; use letters, digits, - . and _`},
		{"NodeName= CPUs=1", `gbatch.conf:5: NodeName names no node; write NodeName=n[1-4]`},
		{"NodeName=m1 CPU=1", `gbatch.conf:5: unknown key "CPU" on a NodeName line; did you mean CPUs?`},
		{"NodeName=m1 KillWait=1", `gbatch.conf:5: unknown key "KillWait" on a NodeName line; put it on a line of its own`},
		{"NodeName=m1 Sockets=2 CoresPerSocket=4 CPUs=9 \nPartitionName=m Nodes=m1",
			`gbatch.conf:5: warning: NodeName=m1: CPUs=9 is not Sockets*CoresPerSocket*ThreadsPerCore (2*4*1=8); 8 is taken; ` +
				`write CPUs=8, or correct the others`},
		{"NodeName=m[1-3] NodeAddr=a[1-2]",
			`gbatch.conf:5: NodeName=m[1-3]: 3 nodes but 2 of NodeAddr; name as many as nodes, or one for all`},
		{"NodeName=m1 Gres=gpu:2\nPartitionName=m Nodes=m1",
			`gbatch.conf:5: resource "gpu" is not in GresTypes; write GresTypes=gpu`},
		{"NodeName=m1 Gres=bw:4G\nGresTypes=bw\nPartitionName=m Nodes=m1",
			`gbatch.conf:5: Gres=bw:4294967296: each unit is given to one job, and a node can have 65536 of a resource; count ` +
				`it in larger units, 65536 at most; or write no_consume in front of the count if jobs don't use it up`},
		{"NodeName=m1 Gres=bw:no_consume:4G\nGresTypes=bw\nPartitionName=m Nodes=m1",
			`gbatch.conf:5: note: Gres=bw:no_consume:4294967296: counts end at 2147483647; jobs can't ask for more`},
		{"NodeName=m1 Gres=gpu:no_consume:4\nGresTypes=gpu\nPartitionName=m Nodes=m1",
			`gbatch.conf:5: Gres=gpu:no_consume:4: no_consume is for properties such as a bandwidth; jobs hold the GPUs that ` +
				`they use; leave no_consume out`},
		{"NodeName=m1 Gres=gpu:a:b:c", `gbatch.conf:5: Gres: "gpu:a:b:c" is not name:type:count; write Gres=gpu:a100:8`},
		{"NodeName=m1 Gres=gpu:a:1,gpu:2",
			`gbatch.conf:5: Gres: gpu is named both with and without a type; write Gres=a type for all of them, or for none`},
		{"NodeName=m1 State=BUSY", `gbatch.conf:5: State: "BUSY" is not a known value; write State=UNKNOWN, CLOUD, DOWN, ` +
			`DRAIN, EXTERNAL, FAIL, FAILING, FUTURE or IDLE`},
		{"DownNodes=x1", `gbatch.conf:5: DownNodes names x1, which no NodeName line defines; add a NodeName line for it`},
		{"FrontendName=f1", `gbatch.conf:5: warning: FrontendName is not supported: every node runs its own ` +
			`gnoded; remove the line`},

		// Partitions.
		{"PartitionName=p Nodes=n[1-9]",
			`gbatch.conf:5: partition p names n[5-9], which no NodeName line defines; add a NodeName line for it`},
		{"PartitionName=p Nodes=n[1-",
			`gbatch.conf:5: partition p: Nodes: "n[1-" at character 2: "[" is never closed; write Nodes=n[1-4] or n1,n2`},
		{"PartitionName=main Nodes=n1",
			`gbatch.conf:5: partition main is defined twice, first in line 4 of gbatch.conf; remove one of the lines`},
		{"PartitionName=p", `gbatch.conf:5: warning: partition p has no nodes; its jobs wait; write Nodes=…`},
		{"PartitionName=p Nodes=n1 Default=YES",
			`gbatch.conf:5: partitions main and p are both the default; keep one Default=YES`},
		{"PartitionName=p Nodes=n1 DefaultTime=2:00:00 MaxTime=60",
			`gbatch.conf:5: partition p: DefaultTime is longer than MaxTime; write a DefaultTime up to 1:00:00`},
		{"PartitionName=p Nodes=n1 MinNodes=3 MaxNodes=2", `gbatch.conf:5: partition p: MinNodes=3 is above MaxNodes=2`},
		{"PartitionName=p Nodes=n1 OverSubscribe=NO:4",
			`gbatch.conf:5: OverSubscribe: "NO:4" does not take that count; write OverSubscribe=NO, EXCLUSIVE, ` +
				`YES:4 or FORCE:4`},
		{"PartitionName=p Nodes=n1 AllowAccounts=a DenyAccounts=b",
			`gbatch.conf:5: warning: partition p: DenyAccounts has no effect beside AllowAccounts; remove it`},
		{"PartitionName=p Nodes=n1 DefMemPerCPU=1 DefMemPerNode=2",
			`gbatch.conf:5: DefMemPerCPU and DefMemPerNode exclude each other`},
		{"NodeSet=n1 Nodes=n2", `gbatch.conf:5: NodeSet=n1 is also the name of a node; choose another name`},
		{"NodeSet=s Feature=x", `gbatch.conf:5: warning: NodeSet=s is empty; write Nodes=… or Feature=…`},
		{"PreemptMode=CANCEL,REQUEUE",
			`gbatch.conf:5: PreemptMode: "CANCEL,REQUEUE" names two ways to preempt; write PreemptMode=one of OFF, CANCEL, ` +
				`REQUEUE, SUSPEND`},
		{"TopologyPlugin=topology/tree",
			`gbatch.conf:5: warning: TopologyPlugin=topology/tree has no effect without switches; write SwitchName lines ` +
				`in topology.conf`},
	} {
		_, problems := LoadFS(files(c.line), MainFile)
		got := ""
		if len(problems) > 0 {
			got = problems[0].String()
		}
		want := strings.Replace(c.want, "gbatch.conf:5: DefMemPerCPU", "gbatch.conf:5: partition p: DefMemPerCPU", 1)
		if strings.HasSuffix(want, "exclude each other") {
			want += "; keep one of them"
		}
		if got != want {
			t.Errorf("%q\n got %s\nwant %s", c.line, lines(problems), want)
		}
	}
}

func TestLexer(t *testing.T) {
	for name, c := range map[string]struct{ main, mail string }{
		"plain":                  {"MailProg=/bin/a", "/bin/a"},
		"case":                   {"mailPROG=/bin/a", "/bin/a"},
		"blanks":                 {" \t MailProg \t = \t /bin/a ", "/bin/a"},
		"quotes":                 {`MailProg="/bin/a b"`, "/bin/a b"},
		"half quoted":            {`MailProg=/bin/"a b"c`, "/bin/a bc"},
		"escaped quote":          {`MailProg="/bin/a\"b"`, `/bin/a"b`},
		"comment":                {"MailProg=/bin/a # comment", "/bin/a"},
		"comment at once":        {"MailProg=/bin/a#comment", "/bin/a"},
		"escaped #":              {`MailProg=/bin/a\#b # c`, "/bin/a#b"},
		"quoted #":               {`MailProg="/bin/a#b" # c`, "/bin/a#b"},
		"continued":              {"MailProg=\\\n/bin/a", "/bin/a"},
		"continued value":        {"MailProg=/bin\\\n/a", "/bin/a"},
		"continued, blanks":      {"JobRequeue=1 \\  \n   MailProg=/bin/a", "/bin/a"},
		"continued, comment":     {"JobRequeue=1 \\ # more below\n MailProg=/bin/a", "/bin/a"},
		"continued comment":      {"# no continuation \\\nMailProg=/bin/a", "/bin/a"},
		"backslash at the end":   {"MailProg=/bin/a \\", "/bin/a"},
		"even backslashes":       {"MailProg=/bin/a\\\\\nJobRequeue=1", `/bin/a\`},
		"DOS":                    {"JobRequeue=1\r\nMailProg=/bin/a\r\n", "/bin/a"},
		"DOS continued":          {"JobRequeue=1 \\\r\n MailProg=/bin/a\r\n", "/bin/a"},
		"several on one line":    {"JobRequeue=1 MailProg=/bin/a KillWait=3", "/bin/a"},
		"empty value":            {"MailProg= KillWait=3", ""},
		"empty value at the end": {"MailProg=", ""},
		"tabs":                   {"JobRequeue=1\tMailProg=/bin/a\tKillWait=3", "/bin/a"},
		"umlauts in a comment":   {"# Gr\xfc\xdfe\nMailProg=/bin/a", "/bin/a"},
	} {
		cfg, problems := LoadFS(files(c.main), MainFile)
		if cfg == nil {
			t.Errorf("%s: %s", name, lines(problems))
		} else if cfg.MailProg != c.mail {
			t.Errorf("%s: MailProg %q, want %q", name, cfg.MailProg, c.mail)
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"binary": {"\x7fELF\x02\x01\x01\x00\x00garbage",
			"gbatch.conf: isn't a text file: byte 0x7f at offset 0; restore it from a copy"},
		"NUL": {base + "\x00", "gbatch.conf: isn't a text file: byte 0x00 at offset " + fmt.Sprint(len(base)) +
			"; restore it from a copy"},
		"UTF-16": {"\xff\xfeC\x00l\x00", "gbatch.conf: is UTF-16; save it as UTF-8"},
		"huge": {strings.Repeat("# comment\n", MaxFileBytes/10+1),
			"gbatch.conf: is larger than 16 MiB; use host lists such as n[1-1000] instead of one line per node"},
		"longest": {base + "MailProg=" + strings.Repeat("x", MaxLineBytes),
			"gbatch.conf:5: line longer than 1048576 bytes; use host lists, or several lines"},
	} {
		cfg, problems := LoadFS(fstest.MapFS{MainFile: {Data: []byte(c.text)}}, MainFile)
		if cfg != nil || lines(problems) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, lines(problems), c.want)
		}
	}
	for name, text := range map[string]string{
		"BOM":                 "\xef\xbb\xbf" + base,
		"no trailing newline": strings.TrimSuffix(base, "\n"),
		"DOS line ends":       strings.ReplaceAll(base, "\n", "\r\n"),
	} {
		if _, problems := LoadFS(fstest.MapFS{MainFile: {Data: []byte(text)}}, MainFile); len(problems) > 0 {
			t.Errorf("%s: %s", name, lines(problems))
		}
	}
}

func TestInclude(t *testing.T) {
	c := mustLoad(t, "Include sub/a.conf\n  include  \"t.conf\"  # the cluster's own\nINCLUDE %c.d/x.conf",
		"sub/a.conf", "KillWait=1\nInclude b.conf\n", "sub/b.conf", "MinJobAge=2", "t.conf", "MailProg=/bin/t", "t.d/x.conf",
		"MaxJobCount=7")
	if c.KillWaitS != 1 || c.MinJobAgeS != 2 || c.MailProg != "/bin/t" || c.MaxJobCount != 7 {
		t.Errorf("%+v", c)
	}
	if want := []string{"gbatch.conf", "sub/a.conf", "sub/b.conf", "t.conf", "t.d/x.conf"}; !slices.Equal(c.Files, want) {
		t.Errorf("files %v, want %v", c.Files, want)
	}
	for name, f := range map[string]struct {
		fsys fstest.MapFS
		want string
	}{
		"circle": {files("Include a", "a", "Include b", "b", "Include a"),
			`b:1: Include "a": the file includes itself; remove this Include`},
		"absolute": {files("Include /etc/passwd"),
			`gbatch.conf:5: included file /etc/passwd can't be read: file does not exist`},
		"up": {files("Include ../x"), `gbatch.conf:5: included file ../x can't be read: file does not exist`},
		"too deep": {files("Include 1", deep(MaxIncludeDepth+2)...),
			`10:1: Include nests more than 10 deep; include it from the main file`},
		"too many": {files(strings.Repeat("Include a\n", MaxFiles+1), "a", ""),
			fmt.Sprintf("gbatch.conf:%d: more than 256 files (also line %d)", MaxFiles+4, MaxFiles+5)},
		"garbage": {files("Include a", "a", "\x00"),
			"gbatch.conf:5: included file a isn't a text file: byte 0x00 at offset 0; restore it from a copy"},
		"early %c": {fstest.MapFS{MainFile: {Data: []byte("Include %c\n" + base)}},
			`gbatch.conf:1: Include "%c" needs the ClusterName; put the ClusterName line above it`},
	} {
		c, problems := LoadFS(f.fsys, MainFile)
		if c != nil || lines(problems) != f.want {
			t.Errorf("%s: %s", name, lines(problems))
		}
	}
}

// deep is a chain of n includes.
func deep(n int) []string {
	var out []string
	for i := 1; i <= n; i++ {
		out = append(out, fmt.Sprint(i), fmt.Sprintf("Include %d", i+1))
	}
	return out
}

// TestLoad reads from the disk.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if c, problems := Load(dir); c != nil || len(problems) != 1 ||
		!strings.Contains(problems[0].String(), "no gbatch.conf and no slurm.conf") {
		t.Errorf("an empty directory: %s", lines(problems))
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(SlurmFile, base+"KillWait=1\n")
	c, problems := Load(dir)
	if c == nil || c.KillWaitS != 1 {
		t.Fatalf("slurm.conf: %s", lines(problems))
	}
	first := c.Hash
	write(MainFile, base+"KillWait=2\n")
	write("more.conf", "MinJobAge=5")
	if c, problems = Load(dir); c == nil || c.KillWaitS != 2 {
		t.Fatalf("gbatch.conf goes before slurm.conf: %s", lines(problems))
	}
	if c.Hash == first || len(c.Hash) != 64 {
		t.Errorf("hash %q, before %q", c.Hash, first)
	}
	if c.PKIDir != filepath.Join(dir, "pki") || c.Path != filepath.Join(dir, MainFile) {
		t.Errorf("PKIDir %q, Path %q", c.PKIDir, c.Path)
	}
	write(MainFile, base+"Include "+filepath.Join(dir, "more.conf"))
	if c, problems = LoadFile(filepath.Join(dir, MainFile)); c == nil || c.MinJobAgeS != 5 {
		t.Fatalf("an absolute Include: %s", lines(problems))
	}
	if c, problems = LoadFile(dir); c == nil || c.MinJobAgeS != 5 || c.Path != filepath.Join(dir, MainFile) {
		t.Errorf("a directory as a file: %s", lines(problems))
	}
	if c, problems = LoadFile(t.TempDir()); c != nil ||
		!strings.Contains(lines(problems), "no gbatch.conf and no slurm.conf in this directory") {
		t.Errorf("an empty directory as a file: %s", lines(problems))
	}
	write(GresFile, "\x00")
	if c, problems = Load(dir); c != nil || len(problems) != 1 ||
		!strings.Contains(lines(problems), "gres.conf: isn't a text file") {
		t.Errorf("garbage beside: %s", lines(problems))
	}
}

// TestProblemsAreBounded: a file full of errors gives a bounded number of problems.
func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 10 * MaxProblems {
		fmt.Fprintf(&b, "Key%d=1\n", i)
	}
	_, problems := LoadFS(files(b.String()), MainFile)
	if len(problems) > MaxProblems+1 {
		t.Errorf("%d problems", len(problems))
	}
	if last := problems[len(problems)-1].String(); !strings.Contains(last, "more than 1000 problems") {
		t.Errorf("the last: %s", last)
	}
	// The same remark about many lines is one.
	_, problems = LoadFS(files(strings.Repeat("AuthType=auth/munge\n", 20)), MainFile)
	want := "gbatch.conf:5: note: AuthType has no effect here: daemons prove themselves by the cluster's own " +
		"certificates, users by the kernel (also lines 6, 7, 8, 9, 10, 11, 12, 13 and 11 more)"
	if got := problems[0].String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// map2fs is a file system with a main file only.
func map2fs(main string) fstest.MapFS { return fstest.MapFS{MainFile: {Data: []byte(main)}} }

// TestLastLineCounts: what a line says counts, also that it says nothing, or the other of two keys that exclude each
// other.
func TestLastLineCounts(t *testing.T) {
	for _, x := range []struct {
		name, text string
		right      func(*Config) bool
	}{
		{"a path that is taken back", "HealthCheckProgram=/a\nHealthCheckProgram=\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool { return c.HealthCheckProgram == "" }},
		{"a default that the line replaces",
			"PartitionName=DEFAULT DefMemPerCPU=5\nPartitionName=p Nodes=n1 DefMemPerNode=7\n",
			func(c *Config) bool {
				m := c.Partitions[1].Mem
				return m.DefPerCPUMiB == 0 && m.DefPerNodeMiB == 7
			}},
		{"names of QOS in any case", "PartitionName=p Nodes=n1 QOS=Gold AllowQos=High,LOW DenyQos=ALL\n",
			func(c *Config) bool {
				p := &c.Partitions[1]
				return p.QOS == "gold" && slices.Equal(p.AllowQOS, []string{"high", "low"}) && p.DenyQOS == nil
			}},
		{"a timeout of one program", "PrologTimeout=7\nPrologEpilogTimeout=60\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool {
				r := c.NodeRules()
				return r.PrologTimeoutS == 7 && r.EpilogTimeoutS == 60
			}},
		{"and behind them", "PrologEpilogTimeout=60\nEpilogTimeout=7\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool {
				r := c.NodeRules()
				return r.PrologTimeoutS == 60 && r.EpilogTimeoutS == 7
			}},
		{"no timeout", "PrologEpilogTimeout=65534\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool { return c.NodeRules().PrologTimeoutS == 0 }},
		{"what jobs get that say nothing", "SelectTypeParameters=CR_Core,CR_ONE_TASK_PER_CORE,ENFORCE_BINDING_GRES\n" +
			"MpiDefault=pmix\nMpiParams=ports=10000-10009\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool {
				p := c.Model().Params
				return p.OneTask && p.BindGres && p.Rules.MPI == "pmix" && p.Rules.FirstPort == 10000 && p.Rules.LastPort == 10009
			}},
		{"an identity provider alone", "AuthAltParameters=jwks=/k\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool { return c.HTTP.NoTokens }},
		{"an identity provider beside own tokens", "AuthAltParameters=jwks=/k,jwt_key=/j\nPartitionName=p Nodes=n1\n",
			func(c *Config) bool { return !c.HTTP.NoTokens }},
	} {
		c, problems := LoadFS(files(x.text), MainFile)
		if c == nil || !x.right(c) {
			t.Errorf("%s: %+v", x.name, problems)
		}
	}
}

// TestEveryWordHasItsRemark: each word of a list that has no effect is named, also in the short form of a name.
func TestEveryWordHasItsRemark(t *testing.T) {
	for line, want := range map[string][]string{
		"LaunchParameters=test_exec,mem_sort":                  {"test_exec", "mem_sort"},
		"TaskPlugin=none":                                      {"TaskPlugin"},
		"JobAcctGatherType=none":                               {"JobAcctGatherType"},
		"TopologyPlugin=3d_torus":                              {"TopologyPlugin"},
		"SelectType=cons_res":                                  {"select/cons_tres"},
		"SlurmctldParameters=idle_on_node_suspnd,cloud_dns":    {"idle_on_node_suspend", "cloud_dns"},
		"SlurmdParameters=numa_node_as_socket,config_override": {"numa_node_as_socket", "config_overrides"},
		"AccountingStorageEnforce=nojobs,nosteps":              {"nojobs", "nosteps"},
		"SelectTypeParameters=CR_Core,CR_PACK_NODES":           {"CR_PACK_NODES"},
		"JobAcctGatherFrequency=task=5,energy=7":               {"energy=7"},
		"SchedulerParameters=batch_sched_delay=5":              {"batch_sched_delay"},
		"SelectTypeParameters=CR_Memory":                       {"CR_Core_Memory"},
		"PrologEpilogTimeout=65534":                            {"30 minutes"},
		"PreemptType=preempt/qos":                              {"QOS that have a PreemptMode of their own"},
		"PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\nPartitionName=x Nodes=n1 OverSubscribe=NO": {
			"partition x: jobs may be suspended"},
		"SelectTypeParameters=CR_CPU,CR_ONE_TASK_PER_CORE":  {"needs whole cores"},
		"SelectTypeParameters=CR_Core,CR_ONE_TASK_PER_CORE": nil,
		"ProctrackType=cgroup":                              nil,
	} {
		_, problems := LoadFS(files(line+"\n"), MainFile)
		all := ""
		for _, p := range problems {
			all += p.Text + " " + p.Hint + "\n"
		}
		key, _, _ := strings.Cut(line, "=")
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("%s: nothing about %s: %s", line, w, all)
			}
		}
		if want == nil && strings.Contains(all, key) {
			t.Errorf("%s: %s", line, all)
		}
	}
	c, problems := LoadFS(files("PropagateResourceLimits=NONE\nPropagateResourceLimitsExcept=MEMLOCK\n"), MainFile)
	if c != nil {
		t.Errorf("two lists of limits: %+v", problems)
	}
}

// TestUnreadFiles: files of Slurm's that count there when they are beside the main one, and aren't read, are named.
func TestUnreadFiles(t *testing.T) {
	fsys := files("PartitionName=p Nodes=n1\n")
	for _, f := range UnreadFiles() {
		fsys[f.Names[0]] = &fstest.MapFile{Data: []byte("x\n")}
	}
	c, problems := LoadFS(fsys, MainFile)
	if c == nil {
		t.Fatal(problems)
	}
	for _, f := range UnreadFiles() {
		if !slices.ContainsFunc(problems, func(p Problem) bool {
			return p.File == f.Names[0] && strings.Contains(p.Text, f.Why) && (p.Severity == Warning) == f.Lost
		}) {
			t.Errorf("nothing about %s: %v", f.Names[0], problems)
		}
	}
}
