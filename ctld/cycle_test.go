package ctld

import (
	"os"
	"testing"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestCycleGap: the time between planning passes is sched_min_interval; with defer it is batch_sched_delay, which has
// no effect without it.
func TestCycleGap(t *testing.T) {
	for params, want := range map[string]time.Duration{
		"bf_interval=30":            cyclePace,
		"sched_min_interval=10":     cyclePace, // nothing is so quick
		"sched_min_interval=500000": 500 * time.Millisecond,
		"batch_sched_delay=20":      cyclePace,
		"defer":                     3 * time.Second,
		"defer,batch_sched_delay=7": 7 * time.Second,
		"defer,batch_sched_delay=1,sched_min_interval=2000000": 2 * time.Second,
	} {
		file := t.TempDir() + "/gbatch.conf"
		if err := os.WriteFile(file, []byte("ClusterName=c\nSlurmctldHost=localhost\nNodeName=n1 CPUs=1\n"+
			"PartitionName=p Nodes=n1 Default=YES\nSchedulerParameters="+params+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, problems := conf.LoadFile(file)
		if c == nil {
			t.Fatalf("%s: %v", params, problems)
		}
		st := state.New()
		st.Apply(state.Command{At: model.Time(1000), Body: &state.SetConfig{Config: c.Model(), Instance: 1}})
		if got := cycleGap(st.View()); got != want {
			t.Errorf("%s: passes are %s apart, want %s", params, got, want)
		}
	}
}
