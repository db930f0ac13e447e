package conf

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// MaxControllers is how many SlurmctldHost lines there may be. Five survive
// two failures; more only make every decision slower.
const MaxControllers = 7

// Bounds of ControllerHeartbeatTimeout and ControllerElectionTimeout.
const (
	minElectionMS = 50 // less, and every pause of a disk or of a process is an election
	maxElectionMS = 60_000
)

// checkElection refuses timeouts with which controllers would elect for ever.
func (l *loader) checkElection() {
	beat, election := l.cfg.ControllerHeartbeatMS, l.cfg.ControllerElectionMS
	for _, k := range []struct {
		name string
		ms   int64
	}{{"ControllerHeartbeatTimeout", beat}, {"ControllerElectionTimeout", election}} {
		if k.ms > 0 && k.ms < minElectionMS {
			l.probs.errorf(l.where(k.name), fmt.Sprintf("write %s=%d, or 0 for the default", k.name, minElectionMS),
				"%s=%d: fewer than %d milliseconds pass in any pause of a disk", k.name, k.ms, minElectionMS)
		}
	}
	if election > 0 && election < beat {
		l.probs.errorf(l.where("ControllerElectionTimeout", "ControllerHeartbeatTimeout"),
			fmt.Sprintf("write ControllerElectionTimeout=%d", beat),
			"ControllerElectionTimeout=%d is less than ControllerHeartbeatTimeout=%d", election, beat)
	}
}

// BeginFile is the name of a file in a controller's StateSaveLocation: its next start begins a new cluster there.
// gctld --begin makes it, and so do the first start of an installation and gbatch up for a new directory.
const BeginFile = "begin"

// readController reads SlurmctldHost=name, name(address) or name(address:port).
func (l *loader) readController(p pair) {
	name, addr, port := p.value, "", int64(0)
	if _, again := l.seen["SlurmctldHost"]; !again {
		l.seen["SlurmctldHost"] = p.at
	}
	if open := strings.IndexByte(p.value, '('); open >= 0 {
		if !strings.HasSuffix(p.value, ")") {
			l.probs.errorf(p.at, "write SlurmctldHost=name(address)", "SlurmctldHost: %s has no closing parenthesis",
				shown(p.value))
			return
		}
		name, addr = p.value[:open], p.value[open+1:len(p.value)-1]
		if host, given, err := net.SplitHostPort(addr); err == nil {
			n, f := readInt(given, 1, 65535)
			if f.bad() {
				l.probs.errorf(p.at, "write SlurmctldHost=name(address:6817)", "SlurmctldHost: port %s", f.why)
				return
			}
			addr, port = host, n
		}
	}
	if name == "" || strings.Trim(name, nameLetters) != "" {
		l.probs.errorf(p.at, "write SlurmctldHost=name or SlurmctldHost=name(address:port)",
			"SlurmctldHost: %s is not a host name", shown(name))
		return
	}
	if strings.ContainsAny(addr, " ()/,") {
		l.probs.errorf(p.at, "write SlurmctldHost=name(address:port)", "SlurmctldHost: %s is not an address", shown(addr))
		return
	}
	l.addController(controllerLine{name: name, addr: addr, port: port, at: p.at})
}

// controllerLine is a controller before the default port is known.
type controllerLine struct {
	name, addr string
	port       int64
	at         pos
}

func (l *loader) addController(c controllerLine) {
	for _, o := range l.controllers {
		if strings.EqualFold(o.name, c.name) {
			l.probs.errorf(c.at, "remove one of the lines", "controller %s is set twice, first in line %d", c.name, o.at.line)
			return
		}
	}
	if len(l.controllers) == MaxControllers {
		l.probs.errorf(c.at, "keep 3 or 5", "more than %d controllers", MaxControllers)
		return
	}
	l.controllers = append(l.controllers, c)
}

// resolveControllers makes addresses of the SlurmctldHost lines, or of the old
// keys where there are none.
func (l *loader) resolveControllers() {
	if len(l.controllers) == 0 {
		for _, old := range [][2]string{{"controlmachine", "controladdr"}, {"backupcontroller", "backupaddr"}} {
			if name := l.old[old[0]]; name.value != "" {
				l.addController(controllerLine{name: name.value, addr: l.old[old[1]].value, at: name.at})
			}
		}
	}
	addrs := map[string]string{}
	for _, c := range l.controllers {
		host, port := c.addr, c.port
		if host == "" {
			host = c.name
		}
		if port == 0 {
			port = l.cfg.SlurmctldPort
		}
		addr := hostPort(host, port)
		if other, twice := addrs[addr]; twice {
			l.probs.errorf(c.at, "give each its own address or port", "controllers %s and %s have the same address %s", other,
				c.name, addr)
		}
		addrs[addr] = c.name
		l.cfg.Controllers = append(l.cfg.Controllers, Controller{Name: c.name, Addr: addr})
	}
	switch n := len(l.cfg.Controllers); {
	case n == 0:
		if _, tried := l.seen["SlurmctldHost"]; !tried {
			l.probs.errorf(pos{file: l.cfg.Path}, "write SlurmctldHost=name or SlurmctldHost=name(address)",
				"no SlurmctldHost: the cluster has no controller")
		}
	case n%2 == 0:
		l.probs.warnf(l.controllers[n-1].at, "name "+strconv.Itoa(n-1)+" or "+strconv.Itoa(n+1),
			"%d controllers survive no more failures than %d: a majority must run", n, n-1)
	}
	if l.cfg.AccountingStorageType == "" {
		l.cfg.AccountingStorageType = accountingNone
		if l.cfg.AccountingStorageHost != "" {
			l.cfg.AccountingStorageType = accountingDbd
		}
	}
	if l.cfg.AccountingStorageType == accountingDbd {
		if l.cfg.AccountingStorageHost == "" {
			l.cfg.AccountingStorageHost = "localhost"
		}
		l.cfg.DbdAddr = hostPort(l.cfg.AccountingStorageHost, l.cfg.AccountingStoragePort)
		l.dbdCopy()
	}
}

// dbdCopy makes the address of the accounting daemon's copy: a host, or host:port where its port is another one.
func (l *loader) dbdCopy() {
	v := l.cfg.AccountingBackupHost
	if v == "" {
		return
	}
	port := l.cfg.AccountingStoragePort
	if host, given, err := net.SplitHostPort(v); err == nil {
		n, f := readInt(given, 1, 65535)
		if f.bad() || host == "" {
			l.probs.errorf(l.where("AccountingStorageBackupHost"), "write a host, or host:port",
				"AccountingStorageBackupHost=%s is no address", v)
			return
		}
		v, port = host, n
	}
	if l.cfg.DbdCopyAddr = hostPort(v, port); l.cfg.DbdCopyAddr == l.cfg.DbdAddr {
		l.probs.errorf(l.where("AccountingStorageBackupHost"), "name another host, or leave it out",
			"AccountingStorageBackupHost is the same address as AccountingStorageHost: a copy is kept by a second gdbd")
	}
}

// alertWord is one word of AlertParameters.
type alertWord struct {
	name string
	most int64
	at   func(*model.AlertRules) int64
	set  func(*model.AlertRules, int64)
}

var alertWords = []alertWord{
	{"lost_time", 86400, func(r *model.AlertRules) int64 { return r.LostS },
		func(r *model.AlertRules, n int64) { r.LostS = n }},
	{"pass_time", 86400, func(r *model.AlertRules) int64 { return r.PassS },
		func(r *model.AlertRules, n int64) { r.PassS = n }},
	{"records_percent", 100, func(r *model.AlertRules) int64 { return int64(r.RecordsPct) },
		func(r *model.AlertRules, n int64) { r.RecordsPct = int32(n) }},
	{"disk_free_percent", 100, func(r *model.AlertRules) int64 { return int64(r.DiskFreePct) },
		func(r *model.AlertRules, n int64) { r.DiskFreePct = int32(n) }},
	{"disk_slow_ms", math.MaxInt32, func(r *model.AlertRules) int64 { return r.DiskSlowMS },
		func(r *model.AlertRules, n int64) { r.DiskSlowMS = n }},
	{"cert_days", 10_000, func(r *model.AlertRules) int64 { return int64(r.CertDays) },
		func(r *model.AlertRules, n int64) { r.CertDays = int32(n) }},
}

// alertParameters is from when on AlertProgram is told of troubles of daemons: lost_time=10,pass_time=60. Words that
// are not there keep their defaults.
func alertParameters() setting {
	return setting{name: "AlertParameters", effect: AtOnce,
		read: func(c *Config, v string) fault {
			for _, item := range splitList(v) {
				name, value, _ := strings.Cut(item, "=")
				k := 0
				for k < len(alertWords) && !strings.EqualFold(alertWords[k].name, name) {
					k++
				}
				if k == len(alertWords) {
					var names []string
					for _, w := range alertWords {
						names = append(names, w.name)
					}
					return fault{shown(name) + " is none of " + strings.Join(names, ", "), "pass_time=60"}
				}
				w := alertWords[k]
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil || n < 0 || n > w.most {
					return fault{fmt.Sprintf("%s=%s is not a whole number from 0 to %d", w.name, shown(value), w.most),
						fmt.Sprintf("%s=%d", w.name, w.at(&c.Alerts))}
				}
				w.set(&c.Alerts, n)
			}
			return fault{}
		},
		show: func(c *Config) string {
			var words []string
			for _, w := range alertWords {
				words = append(words, fmt.Sprintf("%s=%d", w.name, w.at(&c.Alerts)))
			}
			return strings.Join(words, ",")
		}}
}
