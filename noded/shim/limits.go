package shim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	defaultOpenFiles = 1024 // soft RLIMIT_NOFILE of a job that asks for none: what select(2) can handle
	defaultNrOpen    = 1048576
)

var limitNames = [MaxLimits]string{"RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_CORE",
	"RLIMIT_RSS", "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "RLIMIT_AS"}

func limitName(resource int) string {
	if resource >= 0 && resource < len(limitNames) {
		return limitNames[resource]
	}
	return "resource " + strconv.Itoa(resource)
}

func limitText(v uint64) string {
	if v == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(v, 10)
}

// limitRules bounds the limits that a job can get.
type limitRules struct {
	have      func(resource int) (syscall.Rlimit, error) // gshim's own
	mayRaise  bool                                       // CAP_SYS_RESOURCE
	nrOpen    uint64                                     // fs.nr_open: not even root gets more files
	openFiles uint64                                     // soft RLIMIT_NOFILE unless asked for
}

// planLimits returns the limits to set: those asked for, lowered to the possible ones, with a note for each lowered
// one.
func planLimits(asked []Limit, rules limitRules) (set []rlimitArg, notes []string, err error) {
	files := false
	for _, l := range asked {
		have, err := rules.have(l.Resource)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", limitName(l.Resource), err)
		}
		hard, why := l.Hard, ""
		if !(l.Raise && rules.mayRaise) && hard > have.Max {
			hard, why = have.Max, "this node's hard limit"
		}
		if l.Resource == unix.RLIMIT_NOFILE {
			files = true
			if hard > rules.nrOpen {
				hard, why = rules.nrOpen, "fs.nr_open"
			}
		}
		soft := min(l.Soft, hard)
		if why != "" {
			notes = append(notes, fmt.Sprintf("%s (soft %s, hard %s) lowered to %s, %s", limitName(l.Resource),
				limitText(l.Soft), limitText(l.Hard), limitText(hard), why))
		} else if soft != l.Soft {
			notes = append(notes, fmt.Sprintf("%s: soft limit %s lowered to the hard limit %s", limitName(l.Resource),
				limitText(l.Soft), limitText(hard)))
		}
		if soft != have.Cur || hard != have.Max {
			set = append(set, rlimitArg{uintptr(l.Resource), syscall.Rlimit{Cur: soft, Max: hard}})
		}
	}
	if !files {
		have, err := rules.have(unix.RLIMIT_NOFILE)
		if err != nil {
			return nil, nil, fmt.Errorf("RLIMIT_NOFILE: %w", err)
		}
		if soft := min(rules.openFiles, have.Max); soft != have.Cur {
			set = append(set, rlimitArg{unix.RLIMIT_NOFILE, syscall.Rlimit{Cur: soft, Max: have.Max}})
		}
	}
	return set, notes, nil
}

func ownLimit(resource int) (syscall.Rlimit, error) {
	var r syscall.Rlimit
	err := syscall.Getrlimit(resource, &r)
	return r, err
}

// inheritedOpenFiles is the soft RLIMIT_NOFILE that gshim was started with, where that is known: the Go runtime raises
// it to one below the hard limit before main.
func inheritedOpenFiles() uint64 {
	r, err := ownLimit(unix.RLIMIT_NOFILE)
	if err != nil || r.Cur+1 == r.Max {
		return defaultOpenFiles
	}
	return r.Cur
}

// mayRaiseLimits reports whether this process has CAP_SYS_RESOURCE in the first user namespace; in another one the
// capability does not raise limits.
func mayRaiseLimits() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if f := strings.Fields(string(ids)); err != nil || len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295" {
		return false
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
