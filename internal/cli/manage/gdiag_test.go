package manage

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// gdiag prints sdiag's lines in sdiag's order, because exporters read them with regular expressions.
func TestDiag(t *testing.T) {
	f := clitest.New(t, Gdiag)
	f.Diag = clitest.DemoDiag()
	text := `*******************************************************
sdiag output at Thu Nov 16 02:00:00 2023 (1700100000)
Data since      Thu Nov 16 01:50:00 2023 (1700099400)
*******************************************************
Server thread count:  2
Agent queue size:     1
Agent count:          0
Agent thread count:   0
DBD Agent queue size: 3

Jobs submitted: 50
Jobs started:   40
Jobs completed: 30
Jobs canceled:  2
Jobs failed:    1

Job states ts:  Thu Nov 16 02:00:00 2023 (1700100000)
Jobs pending:   10
Jobs running:   7

Main schedule statistics (microseconds):
	Last cycle:   90
	Max cycle:    500
	Total cycles: 20
	Mean cycle:   100
	Mean depth cycle:  3
	Cycles per minute: 2
	Last queue length: 12

Backfilling stats
	Total backfilled jobs (since last slurm start): 9
	Total backfilled jobs (since last stats cycle start): 4
	Total backfilled heterogeneous job components: 0
	Total cycles: 10
	Last cycle when: Thu Nov 16 01:59:59 2023 (1700099999)
	Last cycle: 80
	Max cycle:  400
	Mean cycle: 100
	Last depth cycle: 5
	Last depth cycle (try sched): 2
	Depth Mean: 4
	Depth Mean (try depth): 3
	Last queue length: 11
	Queue length mean: 10
	Last table size: 6
	Mean table size: 5

Replicated log
	Queue length: 4
	job_records: 17

Remote Procedure Call statistics by message type
	REQUEST_JOB_INFO                        ( 2003) count:9      ave_time:100    total_time:900
	REQUEST_PING                            ( 1008) count:2      ave_time:500    total_time:1000

Remote Procedure Call statistics by user
	alice           (    1001) count:11     ave_time:172    total_time:1900

Pending RPC statistics
	No pending RPCs
`
	f.Want(text, "", 0, "sdiag")
	f.Want(text, "", 0, "gdiag", "--all")
	// The first match of each is the main scheduler's, the second the backfill's (vpenso's exporter).
	out, _, _ := f.Run("sdiag")
	for pattern, want := range map[string][]string{`\tLast cycle: +(\d+)`: {"90", "80"},
		`\tMean cycle: +(\d+)`:     {"100", "100"},
		`Agent queue size: +(\d+)`: {"1", "3"}, `Server thread count: +(\d+)`: {"2"}} {
		var got []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(out, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s finds %q, want %q", pattern, got, want)
		}
	}
	out, _, _ = f.Run("sdiag", "-t")
	if i, k := strings.Index(out, "REQUEST_PING"), strings.Index(out, "REQUEST_JOB_INFO"); i > k {
		t.Errorf("-t does not order by time:\n%s", out)
	}
	f.Diag = &proto.DiagReply{Now: clitest.DemoNow, Since: clitest.DemoNow - 1000}
	out, _, _ = f.Run("sdiag")
	if strings.Contains(out, "Mean") || !strings.Contains(out, "\tLast cycle when: N/A\n") {
		t.Errorf("before the first pass:\n%s", out)
	}
	f.Want("Reset scheduling statistics\n", "", 0, "sdiag", "-r")
	if f.Resets != 1 {
		t.Errorf("-r has reset %d times", f.Resets)
	}
	f.Fail[proto.KindDiagReset] = rpc.Errorf(proto.CodeAccess, "Access/permission denied")
	f.Want("", "slurm_get_statistics: Access/permission denied\n", 1, "sdiag", "--reset")
	f.Want("", "sdiag: error: Unrecognized option: now\n", 1, "sdiag", "now")
}

func TestDiagJSON(t *testing.T) {
	f := clitest.New(t, Gdiag)
	f.Diag = clitest.DemoDiag()
	out, _, rc := f.Run("sdiag", "--json")
	if !strings.Contains(out, `"data_parser/v0.0.43"`) {
		t.Errorf("no version: %s", out)
	}
	var got struct {
		Statistics struct {
			Threads int                    `json:"server_thread_count"`
			Dbd     int                    `json:"dbd_agent_queue_size"`
			BF      int                    `json:"bf_backfilled_jobs"`
			Cycles  int                    `json:"bf_cycle_counter"`
			Depth   int                    `json:"bf_last_depth"`
			ReqTime struct{ Number int64 } `json:"req_time"`
			ByType  []struct {
				Type  string `json:"message_type"`
				Count int
			} `json:"rpcs_by_message_type"`
			ByUser []struct {
				User  string
				Total int `json:"total_time"`
			} `json:"rpcs_by_user"`
			WhenCycle struct{ Number int64 } `json:"bf_when_last_cycle"`
		}
		Meta struct{ Slurm struct{ Cluster string } }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || rc != 0 {
		t.Fatalf("rc %d, %v:\n%s", rc, err, out)
	}
	s := got.Statistics
	if s.Threads != 2 || s.Dbd != 3 || s.BF != 9 || s.Cycles != 10 || s.Depth != 5 || s.ReqTime.Number != 1700100000 ||
		s.WhenCycle.Number != 1700099999 ||
		len(s.ByType) != 2 || s.ByType[0].Type != "REQUEST_JOB_INFO" || s.ByUser[0].User != "alice" ||
		s.ByUser[0].Total != 1900 || got.Meta.Slurm.Cluster != "demo" {
		t.Errorf("got %+v", got)
	}
	out, _, _ = f.Run("sdiag", "--json=v0.0.39")
	var old struct {
		Statistics struct {
			ReqTime int64 `json:"req_time"`
		}
	}
	if err := json.Unmarshal([]byte(out), &old); err != nil || old.Statistics.ReqTime != 1700100000 {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestClearStatistics(t *testing.T) {
	f := clitest.New(t, Gacctmgr)
	f.Diag = &proto.DiagReply{Now: clitest.DemoNow}
	f.Want("", "", 0, "sacctmgr", "-i", "clear", "stats")
	if f.Resets != 1 {
		t.Errorf("clear stats has reset them %d times", f.Resets)
	}
	f.Want("", " only statistics can be cleared: write clear stats\n", 1, "sacctmgr", "clear", "jobs")
}
