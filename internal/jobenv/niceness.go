package jobenv

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// niceness.go finds the nice value of the command that submitted a script or step (PropagatePrioProcess). The command
// says it in a variable, which its user could write as well: it is bounded here.

const prioVar = "SLURM_PRIO_PROCESS="

// Niceness gives the nice value of a user's process on a node whose daemon starts processes with own, and the
// environment, without the variable where it counts. Only root's may be below own, and with PrioNicer none.
func Niceness(mode model.PrioMode, own int, uid uint32, env []string) (int, []string) {
	if mode == model.PrioOfDaemon {
		return own, env
	}
	asked := 0
	for _, kv := range env { // the last one counts, as for the process
		if v, is := strings.CutPrefix(kv, prioVar); is {
			asked, _ = strconv.Atoi(v) // a variable that is no number is like none
		}
	}
	least := own
	switch {
	case mode == model.PrioNicer:
		least = own + 1
	case uid == 0:
		least = -20
	}
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, prioVar) })
	return min(max(asked, least), 19), env
}
