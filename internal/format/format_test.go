package format

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

type job struct {
	id                                                          int
	name, user, partition, state, st, account, nodes, reason, k string
	cpus, count, gpus                                           int
	time, end, mem                                              string
}

// jobs is squeue's language, as far as these tests need it.
var jobs = Language[job]{Noun: "job", Fields: []Field[job]{
	{Name: "JobID", Letter: 'i', Heading: "JOBID",
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.id), 10) }},
	{Letter: 'A', Heading: "JOBID",
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.id), 10) }},
	{Name: "Partition", Letter: 'P', Heading: "PARTITION", Get: func(j *job) string { return j.partition }},
	{Name: "Name", Letter: 'j', Heading: "NAME", Get: func(j *job) string { return j.name }},
	{Name: "UserName", Letter: 'u', Heading: "USER", Get: func(j *job) string { return j.user }},
	{Name: "StateCompact", Letter: 't', Heading: "ST", Get: func(j *job) string { return j.st }},
	{Name: "State", Letter: 'T', Heading: "STATE", Get: func(j *job) string { return j.state }},
	{Name: "TimeUsed", Letter: 'M', Heading: "TIME", Get: func(j *job) string { return j.time }},
	{Name: "NumNodes", Letter: 'D', Heading: "NODES",
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.count), 10) }},
	{Name: "NumCPUs", Letter: 'C', Heading: "CPUS",
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.cpus), 10) }},
	{Name: "Account", Letter: 'a', Heading: "ACCOUNT", Get: func(j *job) string { return j.account }},
	{Name: "NodeList", Letter: 'N', Heading: "NODELIST", Whole: true, Get: func(j *job) string { return j.nodes }},
	{Name: "ReasonList", Letter: 'R', Heading: "NODELIST(REASON)", Whole: true, Get: func(j *job) string {
		if j.nodes != "" {
			return j.nodes
		}
		return "(" + j.reason + ")"
	}},
	{Name: "Reason", Letter: 'r', Heading: "REASON", Get: func(j *job) string { return j.reason }},
	{Name: "EndTime", Letter: 'e', Heading: "END_TIME", Get: func(j *job) string { return j.end }},
	{Name: "MinMemory", Letter: 'm', Heading: "MIN_MEMORY", Get: func(j *job) string { return j.mem }},
	{Name: "ArrayTaskID", Letter: 'K', Heading: "ARRAY_TASK_ID", Get: func(*job) string { return "N/A" }},
	{Name: "Comment", Letter: 'k', Heading: "COMMENT", Get: func(j *job) string { return j.k }},
	{Name: "tres-alloc", Heading: "TRES_ALLOC",
		Get: func(j *job) string { return fmt.Sprintf("cpu=%d,mem=%s,gres/gpu=%d", j.cpus, j.mem, j.gpus) }},
	{Name: "tres-per-node", Heading: "TRES_PER_NODE",
		Get: func(j *job) string { return "gres:gpu:a100:" + strconv.Itoa(j.gpus) }},
}}

var two = []job{
	{id: 1000, name: "näme-very-long-job", user: "root", partition: "gpu-long-partition", state: "PENDING", st: "PD",
		account: "acct", reason: "Resources", cpus: 4, count: 1, time: "0:00", end: "N/A", mem: "4G", gpus: 2},
	{id: 1001, name: "näme-very-long-job", user: "root", partition: "gpu-long-partition", state: "RUNNING", st: "R",
		account: "acct", nodes: "nodename-long[1-2]", reason: "None", cpus: 4, count: 2, time: "1:05", end: "N/A", mem: "4G",
		gpus: 2},
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

// The expected texts are what squeue 22.05 printed for two such jobs, save that it counts bytes where we
// count runes.
func TestTemplate(t *testing.T) {
	for _, c := range []struct{ template, want, complaint string }{
		{"%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R", lines(
			"             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
			"              1000 gpu-long- näme-ver     root PD       0:00      1 (Resources)",
			"              1001 gpu-long- näme-ver     root  R       1:05      2 nodename-long[1-2]"), ""},
		{"%i|%.4i|%4i|%.4j|%4j|%20j|%.20j|", lines(
			"JOBID|JOBI|JOBI|NAME|NAME|NAME                |                NAME|",
			"1000|1000|1000|näme|näme|näme-very-long-job  |  näme-very-long-job|",
			"1001|1001|1001|näme|näme|näme-very-long-job  |  näme-very-long-job|"), ""},
		{"%.10N|%10N|%3R|%.5T|%.2D|%.30N|", lines(
			"  NODELIST|NODELIST  |NOD|STATE|NO|                      NODELIST|",
			"          |          |(Re|PENDI| 1|                              |",
			"nodename-long[1-2]|nodename-l|nod|RUNNI| 2|            nodename-long[1-2]|"), ""},
		// clients: vpenso, aiida, rivos, OOD, nextflow, snakemake, buildkite
		{" %A|%a|%T|%C", lines(" JOBID|ACCOUNT|STATE|CPUS", " 1000|acct|PENDING|4", " 1001|acct|RUNNING|4"), ""},
		{"%i^^^%t^^^%r", lines("JOBID^^^ST^^^REASON", "1000^^^PD^^^Resources", "1001^^^R^^^None"), ""},
		{`{"a": "%a", "id": %A, "end_time": "%e", "u": "%u", "state": "%T", "p": "%P", "cpu": %C, "mem": "%m", "array_id": ` +
			`"%K", "r": "%R"}`, lines(
			`{"a": "ACCOUNT", "id": JOBID, "end_time": "END_TIME", "u": "USER", "state": "STATE", "p": "PARTITION", "cpu": `+
				`CPUS, "mem": "MIN_MEMORY", "array_id": "ARRAY_TASK_ID", "r": "NODELIST(REASON)"}`,
			`{"a": "acct", "id": 1000, "end_time": "N/A", "u": "root", "state": "PENDING", "p": "gpu-long-partition", "cpu": `+
				`4, "mem": "4G", "array_id": "N/A", "r": "(Resources)"}`,
			`{"a": "acct", "id": 1001, "end_time": "N/A", "u": "root", "state": "RUNNING", "p": "gpu-long-partition", "cpu": `+
				`4, "mem": "4G", "array_id": "N/A", "r": "nodename-long[1-2]"}`), ""},
		{"\x1e%i\x1f%t", lines("\x1eJOBID\x1fST", "\x1e1000\x1fPD", "\x1e1001\x1fR"), ""},
		{"%i|%T", lines("JOBID|STATE", "1000|PENDING", "1001|RUNNING"), ""},
		{"%k,%A", lines("COMMENT,JOBID", ",1000", ",1001"), ""},
		{` "%i %T"`, lines(` "JOBID STATE"`, ` "1000 PENDING"`, ` "1001 RUNNING"`), ""},
		{"é%i ü%.6té", lines("éJOBID ü    STé", "é1000 ü    PDé", "é1001 ü     Ré"), ""},
		{`%i\t%j\n`, lines(`JOBID\tNAME\n`, `1000\tnäme-very-long-job\n`, `1001\tnäme-very-long-job\n`), ""},
		{"%05i|%.i|%.0i|", lines("JOBID|JOBID|JOBID|", "1000 |1000|1000|", "1001 |1001|1001|"), ""},
		{"%%i", lines("JOBID", "1000", "1001"), ""},
		{"literal", lines("literal", "literal", "literal"), ""},
		{"", lines("", "", ""), ""},
		{"%#P|%.#T|%#a|", lines("PARTITION         |  STATE|ACCOUNT|", "gpu-long-partition|PENDING|acct   |",
			"gpu-long-partition|RUNNING|acct   |"), ""},
		{"%i,%all", lines("JOBID,ACCOUNTll", "1000,acctll", "1001,acctll"), ""},
		// complaints; the rest is printed all the same
		{"%! %i", lines("%! JOBID", "%! 1000", "%! 1001"), "Invalid job format specification: !"},
		{"%..5i %-5i %i|%5.3i", lines("%..5i %-5i JOBID|%5.3i", "%..5i %-5i 1000|%5.3i", "%..5i %-5i 1001|%5.3i"),
			"Invalid job format specification: .\nInvalid job format specification: -\nInvalid job format specification: ."},
		{"%c", lines("%c", "%c", "%c"), "Invalid job format specification: c (did you mean %C?)"},
		{"100% %i", lines("100% JOBID", "100% 1000", "100% 1001"), "Invalid job format specification:  "},
		{"100%", lines("100%", "100%", "100%"), "Invalid job format specification: %"},
		{"%i%5", lines("JOBID%5", "1000%5", "1001%5"), "Invalid job format specification: %5"},
		{"%é", lines("%é", "%é", "%é"), "Invalid job format specification: é"},
	} {
		p, err := jobs.Template(c.template)
		check(t, c.template, p, err, c.want, c.complaint)
	}
	p, err := jobs.Template("%all")
	if err != nil || !strings.HasPrefix(p.String(nil, true), "JOBID|JOBID|PARTITION|") ||
		strings.Contains(p.String(nil, true), "|\n") {
		t.Errorf("%%all: %v %q", err, p.String(nil, true))
	}
}

func TestColumns(t *testing.T) {
	for _, c := range []struct{ format, want, complaint string }{
		{"JobID,Name", lines("JOBID               NAME                ", "1000                näme-very-long-job  ",
			"1001                näme-very-long-job  "), ""},
		{"JobID:,Name:", lines("JOBIDNAME", "1000näme-very-long-job", "1001näme-very-long-job"), ""},
		{"JobID: ,Name: ,State", lines("JOBID NAME STATE               ", "1000 näme-very-long-job PENDING             ",
			"1001 näme-very-long-job RUNNING             "), ""},
		{"JobID:.,Name:.", lines("JOBIDNAME", "1000näme-very-long-job", "1001näme-very-long-job"), ""},
		{"JobID:10|,Name:.10|,State:.3",
			lines("JOBID     |      NAME|STA", "1000      |näme-very-|PEN", "1001      |näme-very-|RUN"), ""},
		{"jobid,STATE:\t", lines("JOBID               STATE\t", "1000                PENDING\t",
			"1001                RUNNING\t"), ""},
		{",jobid,,statecompact,", lines("JOBID               ST                  ",
			"1000                PD                  ", "1001                R                   "), ""},
		{"jobid:5abc,state:|:|", lines("JOBIDabcSTATE|:|", "1000 abcPENDING|:|", "1001 abcRUNNING|:|"), ""},
		{"jobid:0,state:0|", lines("JOBIDSTATE|", "1000PENDING|", "1001RUNNING|"), ""},
		{"", lines("", "", ""), ""},
		// clients: OOD (a trailing comma), psij, pestat
		{"Account:\x1f,JobID:\x1f,tres-alloc:\x1f,tres-per-node:\x1f,",
			lines("ACCOUNT\x1fJOBID\x1fTRES_ALLOC\x1fTRES_PER_NODE\x1f",
				"acct\x1f1000\x1fcpu=4,mem=4G,gres/gpu=2\x1fgres:gpu:a100:2\x1f",
				"acct\x1f1001\x1fcpu=4,mem=4G,gres/gpu=2\x1fgres:gpu:a100:2\x1f"), ""},
		{"State: ,JobID: ,UserName: ,NumNodes: ,tres-alloc: ,NodeList: ,Name:",
			lines("STATE JOBID USER NODES TRES_ALLOC NODELIST NAME",
				"PENDING 1000 root 1 cpu=4,mem=4G,gres/gpu=2  näme-very-long-job",
				"RUNNING 1001 root 2 cpu=4,mem=4G,gres/gpu=2 nodename-long[1-2] näme-very-long-job"), ""},
		{"JobID,StateCompact,Reason", lines("JOBID               ST                  REASON              ",
			"1000                PD                  Resources           ",
			"1001                R                   None                "), ""},
		// complaints; the rest is printed all the same
		{"foo,jobid:", lines("JOBID", "1000", "1001"), "Invalid job format specification: foo"},
		{"jobi,jobid:", lines("JOBID", "1000", "1001"), "Invalid job format specification: jobi (did you mean JobID?)"},
		{"jobid:, state", lines("JOBID", "1000", "1001"),
			"Invalid job format specification:  state (did you mean State or StateCompact?)"},
		{":10,jobid:", lines("JOBID", "1000", "1001"), "Invalid job format specification: "},
	} {
		p, err := jobs.Columns(c.format)
		check(t, c.format, p, err, c.want, c.complaint)
	}
	p, err := jobs.Columns("All")
	if err != nil || !strings.HasPrefix(p.String(nil, true), "JOBID|PARTITION|") {
		t.Errorf("All: %v", err)
	}
}

func check(t *testing.T, format string, p *Printer[job], err error, want, complaint string) {
	t.Helper()
	var unknown *UnknownError
	switch {
	case complaint == "" && err != nil, complaint != "" && (!errors.As(err, &unknown) || err.Error() != complaint):
		t.Errorf("%q: complaint %v, want %q", format, err, complaint)
	case p.String(two, true) != want:
		t.Errorf("%q:\n got %q\nwant %q", format, p.String(two, true), want)
	case p.String(two, false) != want[strings.Index(want, "\n")+1:]:
		t.Errorf("%q: without header %q", format, p.String(two, false))
	}
}

func TestLimits(t *testing.T) {
	for _, s := range []string{"%99999999999999999999i", "%.10001i"} {
		if _, err := jobs.Template(s); err == nil || !strings.Contains(err.Error(), "10000") {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := jobs.Columns("jobid:10001"); err == nil {
		t.Error("a column of 10001")
	}
	if _, err := jobs.Template(strings.Repeat("%i", MaxCells+1)); err == nil {
		t.Error("any number of fields is taken")
	}
	p, err := jobs.Template("%10000i")
	if err != nil || len(p.String(two[:1], false)) != 10001 {
		t.Errorf("%v", err)
	}
}

func TestFieldsAndNames(t *testing.T) {
	p, err := jobs.Template("%i %T")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for f := range p.Fields {
		names = append(names, f.Name)
	}
	if strings.Join(names, " ") != "JobID State" {
		t.Errorf("%q", names)
	}
	l := Language[job]{Fields: []Field[job]{{Name: "Account"}, {Name: "AdminComment"}, {Letter: 'x'}, {Name: "AllocCPUS"},
		{Name: "AllocNodes"}, {Name: "End"}}}
	want := "Account             AdminComment        AllocCPUS           AllocNodes         \nEnd                \n"
	if got := string(l.AppendNames(nil)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWrite(t *testing.T) {
	p, err := jobs.Template("%i %j")
	if err != nil {
		t.Fatal(err)
	}
	many := make([]job, 20_000)
	for i := range many {
		many[i] = two[i%2]
	}
	if got := p.String(many, false); strings.Count(got, "\n") != len(many) {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
	if err := p.Write(failing{}, many, true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"%.18i %.9P|%R", "%%", "%", "%#j", "%-5i", "\xff%i\xfe", "%all", "%99999i"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, template string) {
		if p, err := jobs.Template(template); p != nil {
			s := p.String(two[:1], true)
			if strings.Count(s, "\n") < 2 {
				t.Fatalf("%q printed %q", template, s)
			}
			if !strings.Contains(template, "%") && s != template+"\n"+template+"\n" {
				t.Fatalf("literal %q printed %q", template, s)
			}
		} else if err == nil {
			t.Fatal("neither printer nor error")
		}
		for _, compile := range []func(string) (*Printer[job], error){jobs.Columns,
			func(s string) (*Printer[job], error) { return jobs.Table(s, Style{}) },
			func(s string) (*Printer[job], error) { return jobs.Table(s, Style{Parsable: true, NoTrailing: true}) }} {
			if p, err := compile(template); p != nil {
				p.String(two, true)
			} else if err == nil || err.Error() == "" {
				t.Fatal("neither printer nor error")
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jobs.Template("%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkRows(b *testing.B, p *Printer[job], err error) {
	if err != nil {
		b.Fatal(err)
	}
	rows := make([]job, 10_000)
	for i := range rows {
		rows[i] = two[1]
		rows[i].name, rows[i].id = "train-"+strconv.Itoa(i), 100000+i
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Write(io.Discard, rows, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTemplate10kRows(b *testing.B) {
	p, err := jobs.Template("%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R")
	benchmarkRows(b, p, err)
}

func BenchmarkTable10kRows(b *testing.B) {
	p, err := sacct.Table("jobid,jobname,partition,account,alloccpus,state,exitcode", Style{})
	benchmarkRows(b, p, err)
}
