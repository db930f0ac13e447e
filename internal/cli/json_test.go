package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// jsonList is a list that a command writes with --json.
type jsonList struct {
	name    string // of its files in testdata/json
	command string
}

// jsonLists are all there are.
func jsonLists() []jsonList {
	return []jsonList{
		{"jobs", "squeue -t all -j 10,11,12,18"},
		{"records", "sacct -n -j 12,14,15,20_3"},
		{"nodes", "scontrol show nodes"},
		{"sinfo", "sinfo -a -n g1,bad1"},
		{"gpus", "ginfo -G"},
		{"partitions", "scontrol show partitions"},
		{"reservations", "scontrol show reservations"},
		{"pings", "scontrol ping"},
		{"licenses", "scontrol show licenses"},
		{"why", "gcontrol why"},
		{"statistics", "sdiag"},
		{"shares", "sshare -a"},
		{"accounts", "sacctmgr show account"},
		{"users", "sacctmgr show user"},
		{"associations", "sacctmgr show assoc"},
		{"qos", "sacctmgr show qos"},
		{"tres", "sacctmgr show tres"},
		{"clusters", "sacctmgr show cluster"},
	}
}

// run gives what the command prints in a version, or says what is wrong.
func (l *jsonList) run(t *testing.T, f *clitest.Fake, ver string) string {
	t.Helper()
	words := strings.Fields(l.command)
	out, errText, rc := f.Run(words[0], append([]string{"--json=" + ver}, words[1:]...)...)
	if rc != 0 || errText != "" {
		t.Fatalf("%s --json=%s: rc %d, %q", l.command, ver, rc, errText)
	}
	// sacct's own clock; all others tell the controller's.
	return lastUpdate.ReplaceAllString(out, "${1}0")
}

var lastUpdate = regexp.MustCompile(`("last_update":[^0-9]*)[0-9]+`)

// jsonFake is a cluster that has some of everything.
func jsonFake(t *testing.T) *clitest.Fake {
	f := clitest.New(t, Main)
	f.Jobs, f.Records = clitest.DemoJobs(), clitest.DemoRecords()
	f.Nodes, f.Parts = clitest.DemoNodes(), clitest.DemoParts()
	usage := model.NodeUsage{Node: "n1", Tasks: 2, CPUs: 2, MemMiB: 100, UserMS: 1500, SysMS: 200, PeakKB: 900, RSSKB: 800,
		VMKB: 1000, Faults: 3, ReadB: 4096, WriteB: 8192, Procs: 2, EveryS: 30, Samples: 4}
	step := *f.Records[1]
	step.Step = &model.Step{ID: 0, Name: "train.py", Nodes: []string{"n1"}, Tasks: 2}
	step.Exit.Use = &model.Usage{Nodes: []model.NodeUsage{usage}}
	f.Records = append(f.Records, &step)
	g2 := f.Nodes[5]
	g2.Partitions, g2.Resv, g2.SeenAt = []string{"gpu", "all"}, "upgrade", clitest.DemoNow
	g2.Readings = []proto.UnitReading{{Name: model.GPUName, Index: 1, UtilPct: 80, TempC: 60,
		MemUsedMiB: 1000, MemTotalMiB: 40960, XID: 79}}
	g2.Holders = []proto.UnitHolder{{Name: model.GPUName, Index: 1, Job: "11"}}
	f.Why = &proto.WhyReply{Now: clitest.DemoNow, List: []*model.Explanation{
		{Job: 12, Task: model.NoTask, Name: "train", User: "alice", State: model.Pending, Start: clitest.DemoNow + 3_600_000,
			Text: "It is expected to start then.", Nodes: []string{"n2"},
			Places: []model.QueuePlace{{Partition: "p", Ahead: 0, Queue: 4}},
			Causes: []model.Cause{{Reason: model.ReasonResources, Partition: "p", Text: "busy until <t:1700103600000>",
				Nodes: []string{"n2"}, Jobs: []model.JobID{88, 89}}},
			Changes: []model.WhatIf{{Option: "--time=1:00:00", Start: clitest.DemoNow, Now: true, Nodes: []string{"n1"},
				Partition: "p"}}}}}
	f.Diag = clitest.DemoDiag()
	gpus := []model.TRESLimit{{TRES: "gres/gpu", Count: 4}}
	f.Shares = []proto.ShareRow{
		{Account: "root", NormShares: 1, RawUsage: 4000, NormUsage: 1, Used: 1, LevelFS: 1},
		{Account: "physics", Parent: "physics", User: "alice", UID: 1001, Depth: 2, RawShares: 1, NormShares: 0.5,
			RawUsage: 1000, NormUsage: 0.25, Used: 1, LevelFS: 1, FairShare: 1, ID: 4, GrpTRESMins: gpus,
			TRESMins: []model.TRESCount{{TRES: "cpu", Count: 16}}, RunMins: []model.TRESCount{{TRES: "cpu", Count: 2}}}}
	lim := model.LimitOf(120)
	f.Accts = &proto.AccountsChunk{Gen: 7, Cluster: "demo", TRES: []string{"cpu", "gres/gpu"}, Addr: "127.0.0.1:6817",
		Accounts: []*model.Account{{Name: "root"},
			{Name: "physics", Parent: "root", Description: "p", Organization: "uni", Coordinators: []string{"ann"}}},
		Users: []*model.User{{Name: "ann", DefaultAccount: "physics"}},
		Assocs: []*model.Association{{ID: 1, Account: "root", Shares: 1, QOS: []string{"high", "normal"}},
			{ID: 3, Account: "physics", Shares: 5},
			{ID: 4, Account: "physics", User: "ann", Partition: "gpu", Shares: 1, DefQOS: "high", MaxJobs: lim, GrpTRES: gpus,
				MaxWallS: lim, GrpTRESMins: gpus, GrpTRESRunMins: gpus, MaxTRESRunMins: gpus, MaxTRESMins: gpus,
				MaxTRESPerJob: gpus, MaxTRESPerNode: gpus, MinPrioThresh: lim}},
		QOS: []*model.QOS{{ID: 1, Name: "normal", UsageFactor: model.FactorOne},
			{ID: 2, Name: "high", UsageFactor: model.FactorOne, Flags: model.QOSDenyOnLimit | model.QOSNoDecay,
				Preempt: []string{"normal"}, PreemptMode: "REQUEUE", LimitFactor: model.FactorOne / 2, UsageThreshold: lim,
				PreemptExemptTimeS: lim, GrpTRES: []model.TRESLimit{{TRES: "cpu", Count: 5000, Percent: true}}, MinTRES: gpus,
				GrpTRESMins: gpus, GrpTRESRunMins: gpus, MaxTRESMins: gpus, MaxTRESRunMinsPerAcct: gpus,
				MaxTRESRunMinsPerUser: gpus, MaxTRESPerAccount: gpus, MaxTRESPerJob: gpus, MaxTRESPerNode: gpus,
				MaxTRESPerUser: gpus}}}
	f.Answers = map[uint16]proto.Message{
		proto.KindPing: &proto.PingReply{Cluster: "demo", Now: clitest.DemoNow, Leader: "ctl1",
			Controllers: []proto.ControllerInfo{
				{Name: "ctl1", Addr: "10.0.0.1:6817", Leader: true, Up: true}, {Name: "ctl2", Addr: "10.0.0.2:6817"}}},
		proto.KindPartitions: &proto.PartitionsReply{Now: clitest.DemoNow, Partitions: f.Parts,
			TotalCPUs: f.PartCPUs(), Gres: make([]proto.GresTotals, len(f.Parts))},
		proto.KindConfig: &proto.ConfigReply{Now: clitest.DemoNow, Config: &model.Config{Cluster: "demo",
			Licenses: []model.LicenseCount{{Name: "matlab", Count: 10}}},
			LicensesInUse: []model.LicenseCount{{Name: "matlab", Count: 3}}},
		proto.KindReservations: &proto.ReservationsReply{Now: clitest.DemoNow, List: []*model.Reservation{
			{Name: "upgrade", Start: clitest.DemoNow, End: clitest.DemoNow + 3_600_000, Nodes: []string{"g1", "g2"},
				Partition: "gpu", Features: "a100", Users: []string{"root"}, Accounts: []string{"physics"},
				Parts:    []model.ResvPart{{CPUs: 2, MemMiB: 100}, {CPUs: 2}},
				Licenses: []model.LicenseCount{{Name: "matlab", Count: 2}}, PurgeS: 60}},
			CPUs: []int64{4}, Sizes: []proto.ResvSize{{CPUs: 4, Cores: 4, PartGres: []string{"gpu:a100:2", ""}}}},
	}
	return f
}

// shapeOf gives the version that stands for all whose JSON differs from it in the name only: there are two shapes, and
// members of jobs, nodes and partitions came and went with versions, as in Slurm's specifications.
func (l *jsonList) shapeOf(ver string) string {
	switch {
	case ver < "v0.0.40":
		return "v0.0.39"
	case l.name == "jobs", ver == "v0.0.43" && (l.name == "nodes" || l.name == "sinfo" || l.name == "partitions"):
		return ver
	}
	return "v0.0.42"
}

// TestJSONVersions: the JSON of each command in each version, frozen. A member may be added, but none is removed, and
// none changes its type.
func TestJSONVersions(t *testing.T) {
	f := jsonFake(t)
	for _, l := range jsonLists() {
		texts := map[string]string{}
		for _, ver := range slurmjson.Versions() {
			shape := l.shapeOf(ver)
			out := l.run(t, f, ver)
			word := fmt.Sprintf(`"data_parser":"data_parser/%s"`, ver)
			if strings.Count(out, word) != 1 {
				t.Errorf("%s --json=%s does not name its version once", l.command, ver)
			}
			out = strings.Replace(strings.Replace(out, word, `"data_parser":""`, 1), "--json="+ver, "--json", 1)
			if texts[shape] == "" {
				texts[shape] = out
				golden.Compare(t, "testdata/json/"+l.name+"-"+shape+".json", clitest.Indent(t, out))
			} else if texts[shape] != out {
				t.Errorf("%s --json=%s is of another shape than %s", l.command, ver, shape)
			}
		}
	}
}
