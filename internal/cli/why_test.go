package cli

import (
	"encoding/json"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func TestWhy(t *testing.T) {
	f := clitest.New(t, Main)
	f.Why = &proto.WhyReply{Now: clitest.DemoNow, Left: 2, List: []*model.Explanation{
		{Job: 12, Task: model.NoTask, Name: "train", User: "alice", State: model.Pending,
			Text: "It is expected to start then.", Start: clitest.DemoNow + 3_600_000, Nodes: []string{"n2"},
			Places: []model.QueuePlace{{Partition: "p", Ahead: 0, Queue: 4}, {Partition: "q", Ahead: 2, Queue: 3}},
			Causes: []model.Cause{
				{Reason: model.ReasonResources, Partition: "p",
					Text:  "needs 8 h100 on one node: busy until <t:1700103600000> (job 88), later <t:1700200000000>",
					Nodes: []string{"n2"}, Jobs: []model.JobID{88}},
				{Reason: model.ReasonBeginTime, Text: "does not begin before <t:1700100060000>"}},
			Changes: []model.WhatIf{{Option: "--gres=gpu:h100:4", Start: clitest.DemoNow, Now: true, Nodes: []string{"n1"},
				Partition: "p"}, {Option: "--time=1:00:00", Start: clitest.DemoNow + 60_000}}},
		{Job: 13, ArrayID: 9, Task: 3, Name: "x", User: "bob", State: model.Running,
			Text: "It does not wait: it has been running since <t:1700000000000> on n1."},
	}}
	text := `Job 12 (train) of user alice is PENDING.
  Position: 1 of 4 in partition p
  Position: 3 of 3 in partition q
  Start:    2023-11-16T03:00:00 on n2
            It is expected to start then.
  What holds it:
    1. Resources, partition p: needs 8 h100 on one node: busy until 03:00 (job 88), later 2023-11-17T05:46:40
    2. BeginTime: does not begin before 02:01
  What would let it start sooner:
    --gres=gpu:h100:4: now on n1
    --time=1:00:00: 2023-11-16T02:01:00

Job 9_3 (x) of user bob is RUNNING.
It does not wait: it has been running since 2023-11-14T22:13:20 on n1.

2 more jobs or tasks are not explained; name them.
`
	f.Want(text, "", 0, "gqueue", "--why", "12,9_3")
	f.Want(text, "", 0, "gcontrol", "why", "12", "9_3")
	f.Want("", "scontrol: error: --json goes with why, ping, controllers, dump, import, and show job, step, "+
		"node, partition, reservations and licenses\n",
		1, "scontrol", "--json", "reconfigure")
	out, _, rc := f.Run("gcontrol", "--json", "why", "12")
	var got struct {
		Why []struct {
			Job    string
			Start  struct{ Number int64 } `json:"expected_start"`
			Causes []struct {
				Reason, Text string
				Jobs         []int
			}
			Changes []struct {
				Option string
				Now    bool
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || rc != 0 || len(got.Why) != 2 ||
		got.Why[0].Causes[0].Reason != "Resources" ||
		got.Why[0].Causes[0].Jobs[0] != 88 || !got.Why[0].Changes[0].Now || got.Why[0].Start.Number != 1700103600 ||
		got.Why[1].Job != "9_3" ||
		got.Why[0].Causes[1].Text != "does not begin before 2023-11-16T02:01:00" {
		t.Errorf("rc %d, %v, %+v:\n%s", rc, err, got, out)
	}
}

// TestPingWithoutLeader: nobody speaks with gdbd then, so it is not called down, and the command fails.
func TestPingWithoutLeader(t *testing.T) {
	f := clitest.New(t, Main)
	ping := &proto.PingReply{Cluster: "demo", Now: clitest.DemoNow, Leader: "c1", Term: 3,
		Controllers: []proto.ControllerInfo{{Name: "c1", Up: true, Leader: true}, {Name: "c2"}},
		Dbds:        []proto.DbdInfo{{Addr: "db1:1", Up: true}, {Addr: "db2:1", Copy: true, Why: "away", Behind: 4}}}
	f.Answers = map[uint16]proto.Message{proto.KindPing: ping}
	f.Want("Slurmctld(primary) at c1 is UP\nSlurmctld(backup) at c2 is DOWN\nSlurmdbd(primary) at db1:1 is UP\n"+
		"Slurmdbd(backup) at db2:1 is DOWN: away (4 records behind)\n", "", 0, "gcontrol", "ping")
	ping.Leader, ping.Controllers[0].Leader = "", false
	ping.Dbds[0].Up, ping.Dbds[1].Why = false, ""
	f.Want("Slurmctld(backup) at c1 is UP\nSlurmctld(backup) at c2 is DOWN\n"+
		"Slurmdbd(primary) at db1:1 is not known to be up or down: no controller leads\n"+
		"Slurmdbd(backup) at db2:1 is not known to be up or down: no controller leads\n",
		"gcontrol: no controller leads: of 2, these do not answer: c2 (not heard yet)\n", 1, "gcontrol", "ping")
	if _, _, rc := f.Run("gcontrol", "--json", "ping"); rc != 1 {
		t.Errorf("--json: rc %d", rc)
	}
}
