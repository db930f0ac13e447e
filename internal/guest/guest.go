// Package guest keeps gbatch's daemons modest guests on the machines of others.
//
// Every step of a command or of a job's way wakes another goroutine. Where a CPU is to spare for each, the Go scheduler
// wakes a thread for it and another that looks for more work: on two CPUs that is a fifth of the controller's time and
// a third of the accounting daemon's. With half of them the daemons take less, answer no later, and leave the rest to
// commands and jobs. `scripts/bench.sh` with GOMAXPROCS set shows the difference.
package guest

import (
	"os"
	"runtime"
)

// Half lets this process use half of the machine's CPUs at a time, at least one and at most so many, unless GOMAXPROCS
// in its environment says otherwise. It is called once, by main.
func Half(most int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(max(1, runtime.NumCPU()/2), most))
	}
}
