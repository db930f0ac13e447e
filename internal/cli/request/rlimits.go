package request

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
)

// rlimitNames are Slurm's names for the resource limits that a job inherits.
func rlimitNames() []struct {
	name string
	num  int
} {
	return []struct {
		name string
		num  int
	}{{"CPU", unix.RLIMIT_CPU}, {"FSIZE", unix.RLIMIT_FSIZE}, {"DATA", unix.RLIMIT_DATA}, {"STACK", unix.RLIMIT_STACK},
		{"CORE", unix.RLIMIT_CORE}, {"RSS", unix.RLIMIT_RSS}, {"NPROC", unix.RLIMIT_NPROC}, {"NOFILE", unix.RLIMIT_NOFILE},
		{"MEMLOCK", unix.RLIMIT_MEMLOCK}, {"AS", unix.RLIMIT_AS}}
}

// ResourceLimits reads this process's limits: all ("" or ALL), none (NONE), or the named ones.
func ResourceLimits(which string) ([]model.RLimit, error) {
	if strings.EqualFold(which, "NONE") {
		return nil, nil
	}
	known := rlimitNames()
	wanted := map[string]bool{}
	if which != "" && !strings.EqualFold(which, "ALL") {
		for _, w := range env.SplitList(strings.ToUpper(which)) {
			found := false
			for _, k := range known {
				found = found || k.name == w
			}
			if !found {
				return nil, fmt.Errorf("'%s' is no resource limit; write ALL, NONE or some of CPU, FSIZE, DATA, STACK, CORE, "+
					"RSS, NPROC, NOFILE, MEMLOCK, AS", w)
			}
			wanted[w] = true
		}
	}
	var out []model.RLimit
	for _, k := range known {
		if len(wanted) > 0 && !wanted[k.name] {
			continue
		}
		var r unix.Rlimit
		// Go raises this process's own NOFILE limit at start; the user means the shell's.
		pid := 0
		if k.num == unix.RLIMIT_NOFILE {
			pid = os.Getppid()
		}
		if err := unix.Prlimit(pid, k.num, nil, &r); err != nil {
			if err := unix.Getrlimit(k.num, &r); err != nil {
				return nil, fmt.Errorf("read the limit %s: %w", k.name, err)
			}
		}
		out = append(out, model.RLimit{Resource: uint32(k.num), Soft: r.Cur, Hard: r.Max})
	}
	return out, nil
}
