package conf

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/golden"
)

// TestDiff shows what people see of a reconfigure.
func TestDiff(t *testing.T) {
	before := mustLoad(t, `GresTypes=gpu
KillWait=30 SchedulerParameters=bf_interval=30
SlurmctldHost=c2
SlurmctldHost=c3
NodeName=g[1-4] CPUs=16 RealMemory=1000 Gres=gpu:a100:4 Weight=1
NodeName=old[1-2] CPUs=2
PartitionName=gpu Nodes=g[1-4] MaxTime=60 AllowAccounts=a
PartitionName=gone Nodes=old[1-2]
`, GresFile, "AutoDetect=nvml\n", CgroupFile, "ConstrainCores=yes\n", TopologyFile, "SwitchName=s Nodes=n[1-4],g[1-4],old[1-2]\n")
	after := mustLoad(t, `GresTypes=gpu
KillWait=60 SchedulerParameters=bf_interval=30,defer
SlurmctldHost=c2(10.0.0.2)
SlurmctldHost=c3
NodeName=g[1-2] CPUs=16 RealMemory=2000 Gres=gpu:a100:4 Weight=1
NodeName=g[3-4] CPUs=16 RealMemory=2000 Gres=gpu:a100:8 Weight=5 NodeAddr=10.0.0.[3-4]
NodeName=new[1-3] CPUs=2 Gres=gpu:1
PartitionName=gpu Nodes=g[1-4],new[1-3] MaxTime=UNLIMITED TRESBillingWeights=cpu=2
PartitionName=fresh Nodes=new[1-3]
`, GresFile, "AutoDetect=nvml\nNodeName=new[1-3] Name=gpu File=/dev/nvidia0\n", CgroupFile, "ConstrainCores=yes ConstrainDevices=yes\n",
		TopologyFile, "SwitchName=s Nodes=n[1-4],g[1-4],new[1-3]\n")
	var b strings.Builder
	for _, c := range Diff(before, after) {
		fmt.Fprintln(&b, c)
	}
	b.WriteString("\nand back\n")
	for _, c := range Diff(after, before) {
		fmt.Fprintln(&b, c)
	}
	golden.Compare(t, "testdata/diff.txt", []byte(b.String()))
	if d := Diff(before, before); len(d) > 0 {
		t.Errorf("no difference: %v", d)
	}
}

// TestShownValuesRead: what a setting shows is what it reads, so that the hint
// "write Key=default" is always right.
func TestShownValuesRead(t *testing.T) {
	full, problems := Load("testdata/full")
	if full == nil {
		t.Fatal(lines(problems))
	}
	for _, c := range []*Config{defaults(), full} {
		for i := range mainSettings().list {
			s := &mainSettings().list[i]
			if s.read == nil || s.show == nil || s.status > Unused {
				continue
			}
			shown := s.show(c)
			if shown == orNull("") || s.name == "AccountingStorageTRES" || s.name == "MaxMemPerNode" && shown == "UNLIMITED" {
				continue
			}
			again := defaults()
			if f := s.read(again, strings.TrimSuffix(strings.TrimSuffix(shown, " sec"), " min")); f.bad() {
				t.Errorf("%s=%s: %s", s.name, shown, f.why)
				continue
			}
			if got := s.show(again); got != shown {
				t.Errorf("%s: shown %q, read as %q", s.name, shown, got)
			}
		}
	}
}
