package faultsim

import (
	"flag"
	"regexp"
	"testing"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "one world of TestSim, with its story")
	seeds   = flag.Int("seeds", 1000, "worlds of TestSim")
)

// A thousand clusters live through faults, and every invariant holds after every step.
func TestSim(t *testing.T) {
	if *oneSeed != 0 {
		o := Run(Options{Seed: *oneSeed, Story: true})
		t.Logf("%s\n%+v", o.Story, o)
		if o.Trouble != "" {
			t.Errorf("seed %d: %s", *oneSeed, o.Trouble)
		}
		return
	}
	many := *seeds
	if testing.Short() {
		many = min(many, 100)
	}
	var sum Outcome
	begun := time.Now()
	for seed := uint64(1); seed <= uint64(many); seed++ {
		o := Run(Options{Seed: seed})
		if o.Trouble != "" {
			t.Fatalf("%s\nseed %d: %s\ngo test ./internal/faultsim -run TestSim -seed %[2]d",
				Run(Options{Seed: seed, Story: true}).Story, seed, o.Trouble)
		}
		sum.Steps += o.Steps
		sum.Entries += o.Entries
		sum.Jobs += o.Jobs
		sum.Runs += o.Runs
		sum.Leaders += o.Leaders
		sum.Virtual += o.Virtual
	}
	t.Logf("%d worlds in %v: %d s of their time, %d steps, %d log entries, %d leaders, %d jobs, %d runs", many,
		time.Since(begun).Round(time.Millisecond), sum.Virtual/second, sum.Steps, sum.Entries, sum.Leaders, sum.Jobs,
		sum.Runs)
}

// A seed gives the same world each time, step for step, with and without its story.
func TestSeedReplays(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := Run(Options{Seed: seed}), Run(Options{Seed: seed, Story: true})
		if a.Digest != b.Digest || a.Steps != b.Steps {
			t.Errorf("seed %d: %d steps and %d", seed, a.Steps, b.Steps)
		}
		if a.Digest == Run(Options{Seed: seed + 1000}).Digest {
			t.Errorf("seeds %d and %d give the same world", seed, seed+1000)
		}
	}
}

// Each invariant is broken by a rule that is left out, and the check finds it, and says so, within so many seeds.
func TestBugsAreFound(t *testing.T) {
	for _, b := range []struct {
		bug        Bug
		name, says string
	}{
		{HideLeaving, "what is left is hidden", "is given to job"},
		{NoLease, "no lease", "starts while attempt"},
		{NodeForgets, "a restarted gnoded knows nothing", "is started a second time|starts while attempt|is given to job"},
		{LateOrders, "late orders count", "starts while attempt|starts after attempt|is given to job"},
		{LateHello, "late registrations count", "starts while attempt|is given to job"},
		{OldEpoch, "old epochs count", "obeys a leader of term"},
		{SameBoot, "a reboot is not told", "job|node"},
		{AckEarly, "no majority", "acknowledged"},
		{NoOnce, "no ids", "has made|by its acknowledged extensions|by what it acknowledged"},
		{StaleReads, "no confirmation before answers", "a leader (says|does not know)"},
		{NoChecksum, "flipped bytes are read", "differs from another one"},
		{TrimEarly, "records are dropped when sent", "the outbox is empty"},
		{TakeTwice, "gdbd takes records again", "for ever|its record is missing or another"},
		{AckReports, "reports are acknowledged early", "which was acknowledged to its node"},
		{HostTime, "hosts' clocks stamp", "is ended for its limit"},
		{OwnGPUs, "gnoded chooses GPUs", "says GPUs .* it used"},
		{HeardAt, "ends count from when they are heard", "ms; it had its GPUs for"},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			want := regexp.MustCompile(b.says)
			const within = 300
			for seed := uint64(1); seed <= within; seed++ {
				if o := Run(Options{Seed: seed, Bug: b.bug}); want.MatchString(o.Trouble) {
					t.Logf("seed %d: %s", seed, o.Trouble)
					return
				}
			}
			t.Errorf("nothing of the kind %q is found in %d worlds", b.says, within)
		})
	}
}
