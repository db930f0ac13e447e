package request

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
)

// ResourceLimits reads this process's limits: all ("" or ALL), none (NONE), or the named ones.
func ResourceLimits(which string) ([]model.RLimit, error) {
	if strings.EqualFold(which, "NONE") {
		return nil, nil
	}
	wanted := map[string]bool{}
	if which != "" && !strings.EqualFold(which, "ALL") {
		for _, w := range env.SplitList(strings.ToUpper(which)) {
			if !slices.Contains(model.LimitNames(), w) {
				return nil, fmt.Errorf("'%s' is no resource limit; write ALL, NONE or some of %s", w,
					strings.Join(model.LimitNames(), ", "))
			}
			wanted[w] = true
		}
	}
	var out []model.RLimit
	for num, name := range model.LimitNames() {
		if len(wanted) > 0 && !wanted[name] {
			continue
		}
		var r unix.Rlimit
		// Go raises this process's own NOFILE limit at start; the user means the shell's.
		pid := 0
		if num == unix.RLIMIT_NOFILE {
			pid = os.Getppid()
		}
		if err := unix.Prlimit(pid, num, nil, &r); err != nil {
			if err := unix.Getrlimit(num, &r); err != nil {
				return nil, fmt.Errorf("read the limit %s: %w", name, err)
			}
		}
		out = append(out, model.RLimit{Resource: uint32(num), Soft: r.Cur, Hard: r.Max})
	}
	return out, nil
}
