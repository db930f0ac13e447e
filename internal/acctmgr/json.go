package acctmgr

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// gacctmgr show ... --json: the lists of slurmdb's data_parser.

// listWriter writes accounting records.
type listWriter struct {
	*slurmjson.Writer
	f *Facts
}

// WriteJSON writes the records of a command into a list that is begun.
func WriteJSON(w *slurmjson.Writer, f *Facts, p *Picked) {
	j := &listWriter{w, f}
	for _, a := range p.Accounts {
		j.account(a)
		j.Flush(false)
	}
	for _, u := range p.Users {
		j.user(u)
		j.Flush(false)
	}
	for _, a := range p.Assocs {
		j.assoc(a)
		j.Flush(false)
	}
	for _, q := range p.QOS {
		j.qos(q)
		j.Flush(false)
	}
	for _, t := range p.TRES {
		j.amount(model.TRESLimit{TRES: t})
	}
	if p.Entity == "clusters" {
		j.cluster()
	}
}

// within writes an object.
func (j *listWriter) within(name string, members func()) {
	j.Open(name, '{')
	members()
	j.Close('}')
}

func (j *listWriter) limit(name string, l model.Limit) {
	n, set := l.Value()
	j.Maybe(name, max(n, 0), set, !set)
}

// minutes writes a span that is kept in seconds.
func (j *listWriter) minutes(name string, l model.Limit) {
	if n, set := l.Value(); set {
		l = model.LimitOf(n / 60)
	}
	j.limit(name, l)
}

func (j *listWriter) factor(name string, n int64, set bool) {
	if !set {
		j.Unset(name)
		return
	}
	j.Real(name, float64(n)/float64(model.FactorOne))
}

func (j *listWriter) amount(l model.TRESLimit) {
	typ, name, _ := strings.Cut(l.TRES, "/")
	j.within("", func() {
		j.Str("type", typ)
		j.Str("name", name)
		j.Num("id", j.f.TRESID(l.TRES))
		j.Num("count", l.Count)
		if l.Percent { // gbatch's own: count is hundredths of a percent of the cluster
			j.Bool("percent", true)
		}
	})
}

func (j *listWriter) tres(name string, list []model.TRESLimit) {
	j.Open(name, '[')
	for _, l := range list {
		j.amount(l)
	}
	j.Close(']')
}

// ref writes what names an association.
func (j *listWriter) ref(name string, a *model.Association) {
	j.within(name, func() {
		j.Str("account", a.Account)
		j.Str("cluster", j.f.Cluster)
		j.Str("partition", a.Partition)
		j.Str("user", a.User)
		j.Num("id", int64(a.ID))
	})
}

func (j *listWriter) refs(list []*model.Association) {
	j.Open("associations", '[')
	for _, a := range list {
		j.ref("", a)
	}
	j.Close(']')
}

func (j *listWriter) coordinators(list []string) {
	j.Open("coordinators", '[')
	for _, name := range list {
		j.within("", func() {
			j.Str("name", name)
			j.Bool("direct", true)
		})
	}
	j.Close(']')
}

func (j *listWriter) account(a *model.Account) {
	j.within("", func() {
		j.refs(j.f.Associations(a.Name, ""))
		j.coordinators(a.Coordinators)
		j.Str("description", a.Description)
		j.Str("name", a.Name)
		j.Str("organization", a.Organization)
		j.List("flags", nil)
	})
}

func (j *listWriter) user(u *model.User) {
	var over []string
	for name, a := range j.f.Accounts {
		if slices.Contains(a.Coordinators, u.Name) {
			over = append(over, name)
		}
	}
	slices.Sort(over)
	j.within("", func() {
		j.Words("administrator_level", u.Admin.String())
		j.refs(j.f.Associations("", u.Name))
		j.coordinators(over)
		j.within("default", func() {
			j.Str("account", u.DefaultAccount)
			j.Str("wckey", "")
		})
		j.List("flags", nil)
		j.Str("name", u.Name)
		j.Str("old_name", "")
		j.List("wckeys", nil)
	})
}

func (j *listWriter) assoc(a *model.Association) {
	u := j.f.Users[a.User]
	parent := a.Account
	if a.User == "" {
		parent = j.f.Parent(a.Account)
	}
	j.within("", func() {
		j.List("accounting", nil)
		j.Str("account", a.Account)
		j.Str("cluster", j.f.Cluster)
		j.Str("comment", "")
		j.within("default", func() { j.Str("qos", a.DefQOS) })
		j.List("flags", nil)
		j.ref("id", a)
		j.Bool("is_default", u != nil && u.DefaultAccount == a.Account)
		j.Str("lineage", j.lineage(a))
		j.within("max", func() { j.assocMax(a) })
		j.within("min", func() { j.limit("priority_threshold", a.MinPrioThresh) })
		j.Str("parent_account", parent)
		j.Str("partition", a.Partition)
		j.limit("priority", a.Priority)
		j.List("qos", a.QOS)
		j.Num("shares_raw", a.Shares)
		j.Str("user", a.User)
	})
}

// assocMax writes an association's upper limits.
func (j *listWriter) assocMax(a *model.Association) {
	j.within("jobs", func() {
		j.within("per", func() {
			j.limit("count", a.GrpJobs)
			j.limit("accruing", a.GrpAccrue)
			j.limit("submitted", a.GrpSubmit)
			j.minutes("wall_clock", a.MaxWallS)
		})
		j.limit("active", a.MaxJobs)
		j.limit("accruing", a.MaxAccrue)
		j.limit("total", a.MaxSubmit)
	})
	j.within("tres", func() {
		j.tres("total", a.GrpTRES)
		j.within("group", func() {
			j.tres("minutes", a.GrpTRESMins)
			j.tres("active", a.GrpTRESRunMins)
		})
		j.within("minutes", func() {
			j.tres("total", a.MaxTRESRunMins)
			j.within("per", func() { j.tres("job", a.MaxTRESMins) })
		})
		j.within("per", func() {
			j.tres("job", a.MaxTRESPerJob)
			j.tres("node", a.MaxTRESPerNode)
		})
	})
	j.within("per", func() {
		j.within("account", func() { j.minutes("wall_clock", a.GrpWallS) })
	})
}

// lineage is the way from the root to an association: /physics/0-ann/, with the partition behind the user.
func (j *listWriter) lineage(a *model.Association) string {
	text := ""
	for up, n := a.Account, 0; up != "" && up != model.RootAccount && n <= len(j.f.Accounts); up, n = j.f.Parent(up), n+1 {
		text = up + "/" + text
	}
	text = "/" + text
	if a.User != "" {
		text += "0-" + a.User + "/"
	}
	if a.Partition != "" {
		text += a.Partition + "/"
	}
	return text
}

func (j *listWriter) qos(q *model.QOS) {
	var flags []string
	for name := range strings.SplitSeq(q.Flags.String(), ",") {
		if word := qosFlagJSON(name); word != "" {
			flags = append(flags, word)
		}
	}
	exempt, exempts := q.PreemptExemptTimeS.Value()
	threshold, holds := q.UsageThreshold.Value()
	j.within("", func() {
		j.Str("description", q.Description)
		j.List("flags", flags)
		j.Num("id", int64(q.ID))
		j.within("limits", func() {
			j.Num("grace_time", q.GraceTimeS)
			j.within("max", func() { j.qosMax(q) })
			j.factor("factor", q.LimitFactor, q.LimitFactor != 0)
			j.within("min", func() {
				j.limit("priority_threshold", q.MinPrioThresh)
				j.within("tres", func() {
					j.within("per", func() { j.tres("job", q.MinTRES) })
				})
			})
		})
		j.Str("name", q.Name)
		j.within("preempt", func() {
			j.List("list", q.Preempt)
			j.Words("mode", cmp.Or(q.PreemptMode, "DISABLED"))
			j.Maybe("exempt_time", max(exempt, 0), exempts, false)
		})
		j.Count("priority", int64(q.Priority))
		j.factor("usage_factor", q.UsageFactor, true)
		j.factor("usage_threshold", threshold, holds)
	})
}

// qosMax writes a QOS's upper limits.
func (j *listWriter) qosMax(q *model.QOS) {
	j.within("active_jobs", func() {
		j.limit("accruing", q.GrpAccrue)
		j.limit("count", q.GrpJobs)
	})
	j.within("jobs", func() {
		j.limit("count", q.GrpSubmit)
		j.within("active_jobs", func() {
			j.within("per", func() {
				j.limit("account", q.MaxJobsPerAccount)
				j.limit("user", q.MaxJobsPerUser)
			})
		})
		j.within("per", func() {
			j.limit("account", q.MaxSubmitPerAccount)
			j.limit("user", q.MaxSubmitPerUser)
		})
	})
	j.within("accruing", func() {
		j.within("per", func() {
			j.limit("account", q.MaxAccruePerAccount)
			j.limit("user", q.MaxAccruePerUser)
		})
	})
	j.within("tres", func() {
		j.tres("total", q.GrpTRES)
		j.within("minutes", func() {
			j.tres("total", q.GrpTRESMins)
			j.within("per", func() {
				j.tres("qos", q.GrpTRESRunMins)
				j.tres("job", q.MaxTRESMins)
				j.tres("account", q.MaxTRESRunMinsPerAcct)
				j.tres("user", q.MaxTRESRunMinsPerUser)
			})
		})
		j.within("per", func() {
			j.tres("account", q.MaxTRESPerAccount)
			j.tres("job", q.MaxTRESPerJob)
			j.tres("node", q.MaxTRESPerNode)
			j.tres("user", q.MaxTRESPerUser)
		})
	})
	j.within("wall_clock", func() {
		j.within("per", func() {
			j.minutes("qos", q.GrpWallS)
			j.minutes("job", q.MaxWallS)
		})
	})
}

// qosFlagJSON gives data_parser's word for a QOS's flag, or "".
func qosFlagJSON(name string) string {
	return map[string]string{"DenyOnLimit": "DENY_LIMIT", "EnforceUsageThreshold": "ENFORCE_USAGE_THRESHOLD",
		"NoReserve":         "NO_RESERVE",
		"PartitionMaxNodes": "PARTITION_MAXIMUM_NODE", "PartitionMinNodes": "PARTITION_MINIMUM_NODE",
		"OverPartQOS":        "OVERRIDE_PARTITION_QOS",
		"PartitionTimeLimit": "PARTITION_TIME_LIMIT", "RequiresReservation": "REQUIRED_RESERVATION", "NoDecay": "NO_DECAY",
		"UsageFactorSafe": "USAGE_FACTOR_SAFE", "Relative": "RELATIVE", "NoPreempt": "NO_PREEMPT",
		"GpuIdleOK": "GPU_IDLE_OK"}[name]
}

func (j *listWriter) cluster() {
	host, port := j.f.Addr, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host, port = strings.Trim(host[:i], "[]"), host[i+1:]
	}
	n, _ := strconv.ParseInt(port, 10, 32) // 0 where the controller doesn't say
	j.within("", func() {
		j.within("controller", func() {
			j.Str("host", host)
			j.Num("port", n)
		})
		j.List("flags", nil)
		j.Str("name", j.f.Cluster)
		j.within("associations", func() {
			for _, a := range j.f.Associations(model.RootAccount, "") {
				if a.User == "" {
					j.ref("root", a)
				}
			}
		})
		j.tres("tres", nil)
	})
}
