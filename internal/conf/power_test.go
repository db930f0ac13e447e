package conf

import (
	"slices"
	"testing"

	"gbatch/internal/model"
)

// TestPower: the keys about power as they are read and shown.
func TestPower(t *testing.T) {
	c := mustLoad(t, `SuspendProgram=/off ResumeProgram=/on SuspendTime=600 SuspendTimeout=20 ResumeTimeout=300
SuspendRate=10 ResumeRate=0 SuspendExcNodes=c[1,3]:1,c2 SuspendExcParts=p SuspendExcStates=down,reserved
SlurmctldParameters=cloud_dns,idle_on_node_suspend
PowerKeepIdle=1,10%@Mon-Fri/08:00-18:00,2@22:00-06:00,3@Sat
NodeName=c[1-4] CPUs=4 State=CLOUD
PartitionName=p Nodes=c[1-2] SuspendTime=INFINITE PowerDownOnIdle=YES PowerMaxUse=80
PartitionName=q Nodes=c[2-3] SuspendTime=60 ResumeTimeout=400 PowerJobsPerNode=3
`)
	m := c.Model()
	p := m.Params.Power
	if !p.On() || p.SuspendS != 600 || p.SuspendTimeoutS != 20 || p.ResumeTimeoutS != 300 || p.SuspendRate != 10 ||
		p.ResumeRate != 0 || !p.IdleAfter || !slices.Equal(p.SpareStates, []string{"DOWN", "RESERVED"}) {
		t.Errorf("the cluster's: %+v", p)
	}
	if len(p.Spare) != 2 || p.Spare[0].Count != 1 || !slices.Equal(p.Spare[0].Nodes, []string{"c1", "c3"}) ||
		p.Spare[1].Count != 0 || !slices.Equal(p.Spare[1].Nodes, []string{"c2"}) {
		t.Errorf("SuspendExcNodes: %+v", p.Spare)
	}
	if got := showKeep(p.Scale.Keep); got != "1,10%@Mon-Fri/08:00-18:00,2@22:00-06:00,3@Sat" {
		t.Errorf("PowerKeepIdle: %s", got)
	}
	spans := m.PowerSpans()
	for node, want := range map[string]model.PowerSpan{"c1": {SuspendS: -1, DownS: 20, UpS: 300},
		"c2": {SuspendS: -1, DownS: 20, UpS: 400}, "c3": {SuspendS: 60, DownS: 20, UpS: 400},
		"c4": {SuspendS: 600, DownS: 20, UpS: 300}} {
		if spans[node] != want || m.PowerSpan(node) != want {
			t.Errorf("%s: %+v and %+v, wanted %+v", node, spans[node], m.PowerSpan(node), want)
		}
	}
	for _, d := range m.Nodes {
		if d.Cloud != (d.Name[0] == 'c') {
			t.Errorf("%+v", d)
		}
	}
	for _, part := range m.Partitions {
		if own := part.Power; part.Name == "p" && (own == nil || !own.OnIdle || own.Scale.MaxUse != 80) {
			t.Errorf("%+v", own)
		}
	}
	for text, want := range map[string]string{"x": "is neither", "3@Xyz": "names no days", "3@Mon/8-18": "names no times",
		"101%": "is neither", "2@08:00-08:00": "names no times"} {
		if _, f := readKeep(text); !f.bad() {
			t.Errorf("PowerKeepIdle=%s is taken, wanted: %s", text, want)
		}
	}
}
