package format

import (
	"strconv"
	"strings"
	"testing"
)

// sacct's language, as far as these tests need it, in its order: prefixes depend on it.
var sacct = Language[job]{Noun: "field", Fields: []Field[job]{
	{Name: "Account", Width: 10, Get: func(j *job) string { return j.account }},
	{Name: "AllocCPUS", Width: 10, Whole: true,
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.cpus), 10) }},
	{Name: "End", Width: 19, Get: func(j *job) string { return j.end }},
	{Name: "ExitCode", Width: 8, Get: func(*job) string { return "0:0" }},
	{Name: "JobID", Width: 12, Left: true,
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.id), 10) }},
	{Name: "JobIDRaw", Width: 12, Left: true,
		Append: func(b []byte, j *job) []byte { return strconv.AppendInt(b, int64(j.id), 10) }},
	{Name: "JobName", Width: 10, Get: func(j *job) string { return j.name }},
	{Name: "NodeList", Width: 15, Get: func(j *job) string { return j.nodes }},
	{Name: "Partition", Width: 10, Get: func(j *job) string { return j.partition }},
	{Name: "Start", Width: 19, Get: func(*job) string { return "2023-11-14T22:13:20" }},
	{Name: "State", Width: 10, Get: func(j *job) string { return j.state }},
	{Name: "User", Width: 9, Get: func(j *job) string { return j.user }},
}}

// Expected texts are what sacct 22.05 printed for two such records, save that it counts bytes.
func TestTable(t *testing.T) {
	records := []job{
		{id: 1000, name: "name-very-long-job", account: "acct", partition: "gpu-long-partition", state: "CANCELLED by 1001",
			cpus: 4, user: "alice", end: "2023-11-14T22:15:00", nodes: "n[1-2]"},
		{id: 1001, name: "näme-very-long-job", account: "acct", partition: "debug", state: "RUNNING", cpus: 4000,
			user: "alice", end: "Unknown", nodes: "n[1-2]"},
	}
	parsable, parsable2 := Style{Parsable: true}, Style{Parsable: true, NoTrailing: true}
	for _, c := range []struct {
		format, want, complaint string
		style                   Style
	}{
		{"jobid,jobname,partition,account,alloccpus,state,exitcode", lines(
			"JobID           JobName  Partition    Account  AllocCPUS      State ExitCode ",
			"------------ ---------- ---------- ---------- ---------- ---------- -------- ",
			"1000         name-very+ gpu-long-+       acct          4 CANCELLED+      0:0 ",
			"1001         näme-very+      debug       acct       4000    RUNNING      0:0 "), "", Style{}},
		{"jobid,jobname%20,state%-20,part%5,acc", lines(
			"JobID                     JobName State                Parti    Account ",
			"------------ -------------------- -------------------- ----- ---------- ",
			"1000           name-very-long-job CANCELLED by 1001    gpu-+       acct ",
			"1001           näme-very-long-job RUNNING              debug       acct "), "", Style{}},
		{"jobid%-4,state%3,state%1,state%-1,alloc%3", lines(
			"JobI Sta S S All ",
			"---- --- - - --- ",
			"1000 CA+ + +   4 ",
			"1001 RU+ + + 4000 "), "", Style{}},
		{"st%-30,j", lines("Start                          JobID        ", strings.Repeat("-", 30)+" ------------ ",
			"2023-11-14T22:13:20            1000         ", "2023-11-14T22:13:20            1001         "), "", Style{}},
		{" state, ,jobid ,", lines("     State JobID        ", "---------- ------------ ", "CANCELLED+ 1000         ",
			"   RUNNING 1001         "), "", Style{}},
		{"", lines("", "", "", ""), "", Style{}},
		{"jobid,jobname%3,end", lines("JobID|JobName|End", "1000|name-very-long-job|2023-11-14T22:15:00",
			"1001|näme-very-long-job|Unknown"), "", parsable2},
		{"jobid,jobname%3,end", lines("JobID|JobName|End|", "1000|name-very-long-job|2023-11-14T22:15:00|",
			"1001|näme-very-long-job|Unknown|"), "", parsable},
		// clients: reportseff, OOD, snakemake, jobstats, submitit, parsl
		{"JobID,State,AllocCPUS", lines("JobID^|^State^|^AllocCPUS^|^", "1000^|^CANCELLED by 1001^|^4^|^",
			"1001^|^RUNNING^|^4000^|^"), "", Style{Parsable: true, Delimiter: "^|^"}},
		{"User,JobId,JobName", lines("User\x1fJobID\x1fJobName", "alice\x1f1000\x1fname-very-long-job",
			"alice\x1f1001\x1fnäme-very-long-job"), "", Style{Parsable: true, NoTrailing: true, Delimiter: "\x1f"}},
		{"JobIdRaw,State", lines("JobIDRaw|State", "1000|CANCELLED by 1001", "1001|RUNNING"), "", parsable2},
		{"nodelist%-20", lines("NodeList             ", "-------------------- ", "n[1-2]               ",
			"n[1-2]               "), "", Style{}},
		{"jobid,state%20", lines("JobID                       State ", "------------ -------------------- ",
			"1000            CANCELLED by 1001 ", "1001                      RUNNING "), "", Style{}},
		// complaints
		{"jobid,foo", lines("JobID|", "1000|", "1001|"), `Invalid field requested: "foo"`, parsable},
		{"jbid,stat,statee", lines("State", "CANCELLED by 1001", "RUNNING"),
			"Invalid field requested: \"jbid\" (did you mean JobID?)\nInvalid field requested: \"statee\" (did you mean State?)",
			parsable2},
	} {
		p, err := sacct.Table(c.format, c.style)
		if c.complaint == "" && err != nil || c.complaint != "" && (err == nil || err.Error() != c.complaint) {
			t.Errorf("%q: complaint %v, want %q", c.format, err, c.complaint)
		}
		if got := p.String(records, true); got != c.want {
			t.Errorf("%q:\n got %q\nwant %q", c.format, got, c.want)
		}
	}
	// What users write makes no columns.
	forged := []job{{name: "x|COMPLETED|0:0", state: "CANCELLED by 1"}}
	for delimiter, want := range map[string]string{"": "x?COMPLETED?0:0|CANCELLED by 1\n",
		"|C": "x??OMPLETED|0:0|CCANCELLED by 1\n", " ": "x|COMPLETED|0:0 CANCELLED by 1\n"} {
		p, err := sacct.Table("jobname,state", Style{Parsable: true, NoTrailing: true, Delimiter: delimiter})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.String(forged, false); got != want {
			t.Errorf("with %q between: %q, not %q", delimiter, got, want)
		}
	}
	for _, bad := range []string{"jobid%abc", "state%+5", "state%", "state%0", "state%-", "state%99999", "state%5x"} {
		if _, err := sacct.Table(bad, Style{}); err == nil || !strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	p, err := sacct.Table("all", parsable2)
	if want := "Account|AllocCPUS|End|ExitCode|JobID|JobIDRaw|JobName|NodeList|Partition|Start|State|User\n"; err != nil ||
		p.String(nil, true) != want {
		t.Errorf("all: %v %q", err, p.String(nil, true))
	}
}
