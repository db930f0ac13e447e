package up

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// leftover.go finds and ends what jobs have left outside of what the launchers know: a command of a batch script that
// has ended, a process in a session of its own, a program of Prolog or Epilog. gnoded and gshim have ended by then.
// Such a process is known by its environment, which names the node and this cluster's configuration; what has thrown
// that away, by its control group, which only gshim puts it into.

const (
	leftoverPatience = 10 * time.Second // for what was killed to be gone
	leftoverEvery    = 20 * time.Millisecond
	leftoversNamed   = 8
)

// leftover is a process that a job has left.
type leftover struct {
	process
	text string
}

// leftovers finds those of a node, or of all nodes if it is "". The caller and those that started it are none: `gbatch
// down` may itself run in a job.
func (l layout) leftovers(groups []string, node string) ([]leftover, error) {
	all, err := commands()
	if err != nil {
		return nil, err
	}
	mine := ancestors(os.Getpid())
	var out []leftover
	for p, argv := range all {
		if slices.Contains(mine, p.PID) || !l.ofJob(p.PID, node) && !inGroup(p.PID, groups) {
			continue
		}
		text := strings.Join(argv, " ")
		const most = 60 // bytes
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "..."
		}
		out = append(out, leftover{p, fmt.Sprintf("%d (%s)", p.PID, text)})
	}
	slices.SortFunc(out, func(a, b leftover) int { return a.PID - b.PID })
	return out, nil
}

// ofJob reports whether a process has the environment that gnoded gives to a job on a node; "": on any.
func (l layout) ofJob(pid int, node string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false // gone, or somebody else's
	}
	env = append([]byte{0}, env...)
	name := "\x00SLURMD_NODENAME="
	if node != "" {
		name += node + "\x00"
	}
	return bytes.Contains(env, []byte(name)) &&
		bytes.Contains(env, []byte("\x00SLURM_CONF="+l.conf()+"\x00"))
}

// inGroup reports whether a process is in one of the nodes' control groups.
func inGroup(pid int, groups []string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false // gone
	}
	return slices.ContainsFunc(groups, func(g string) bool { return bytes.Contains(b, []byte("/"+g+"/")) })
}

// ancestors gives a process, its parent, and so on.
func ancestors(pid int) []int {
	var out []int
	for pid > 1 && len(out) < 64 {
		out = append(out, pid)
		pid = parentOf(pid)
	}
	return out
}

// endLeftovers kills what jobs have left on a node, or on all nodes if it is "", and says what it could not end.
func (l layout) endLeftovers(groups []string, node string, say func(string, ...any)) error {
	killed := map[process]bool{}
	for end := time.Now().Add(leftoverPatience); ; time.Sleep(leftoverEvery) {
		list, err := l.leftovers(groups, node)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			if len(killed) > 0 {
				say("killed what jobs had left: %d more of their processes", len(killed))
			}
			return nil
		}
		if time.Now().After(end) {
			var names []string
			for _, p := range list[:min(len(list), leftoversNamed)] {
				names = append(names, p.text)
			}
			if more := len(list) - len(names); more > 0 {
				names = append(names, fmt.Sprintf("%d more", more))
			}
			return fmt.Errorf("processes of jobs survive SIGKILL; they hang in the kernel, on a file server or a device: %s",
				strings.Join(names, ", "))
		}
		for _, p := range list {
			if err := p.signal(syscall.SIGKILL); err != nil {
				return err
			}
			killed[p.process] = true
		}
	}
}
