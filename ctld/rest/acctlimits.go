package rest

import (
	"strconv"
	"strings"

	"gbatch/internal/acctmgr"
	"gbatch/internal/walltime"
)

// acctlimits.go reads the limits of associations and QOS, as gacctmgr's settings.

// settings are words such as GrpJobs=5, from members of objects.
type settings []string

func (s *settings) add(key, value string) { *s = append(*s, key+"="+value) }

// text adds a member that is there and not empty.
func (s *settings) text(o *object, name, key string) {
	if o == nil {
		return
	}
	if v, ok := o.text(name); ok && v != "" {
		s.add(key, v)
	}
}

// limit adds a number. One that is there without a value clears the limit.
func (s *settings) limit(o *object, name, key string) {
	if o == nil {
		return
	}
	switch n := o.number(name); {
	case n.set:
		s.add(key, strconv.FormatInt(n.int(), 10))
	case n.given:
		s.add(key, "-1")
	}
}

// minutes is limit for a span.
func (s *settings) minutes(o *object, name, key string) {
	if o == nil {
		return
	}
	switch n := o.number(name); {
	case n.set:
		s.add(key, walltime.Elapsed(n.int()*60))
	case n.given:
		s.add(key, "-1")
	}
}

// amounts adds a list of resources.
func (s *settings) amounts(o *object, name, key string) {
	if o == nil {
		return
	}
	if list := o.objects(name); len(list) > 0 {
		s.add(key, tresWords(list))
	}
}

// in gives an object inside of others; nil: there is none.
func (o *object) at(names ...string) *object {
	for _, n := range names {
		if o == nil {
			return nil
		}
		o = o.object(n)
	}
	return o
}

// assocSettings reads the limits of an association.
func assocSettings(o *object) (s settings) {
	s.text(o.at("default"), "qos", "DefaultQOS")
	if list, ok := o.list("qos"); ok && len(list) > 0 {
		s.add("QosLevel", strings.Join(list, ","))
	}
	if n := o.number("shares_raw"); n.set && n.v > 0 {
		s.add("Fairshare", strconv.FormatInt(n.int(), 10))
	}
	s.limit(o, "priority", "Priority")
	s.text(o, "comment", "Comment")
	jobs := o.at("max", "jobs")
	s.limit(jobs, "active", "MaxJobs")
	s.limit(jobs, "total", "MaxSubmitJobs")
	s.limit(jobs, "accruing", "MaxJobsAccrue")
	per := jobs.at("per")
	s.limit(per, "count", "GrpJobs")
	s.limit(per, "submitted", "GrpSubmitJobs")
	s.limit(per, "accruing", "GrpJobsAccrue")
	s.minutes(per, "wall_clock", "MaxWall")
	tres := o.at("max", "tres")
	s.amounts(tres, "total", "GrpTRES")
	s.amounts(tres.at("group"), "minutes", "GrpTRESMins")
	s.amounts(tres.at("group"), "active", "GrpTRESRunMins")
	s.amounts(tres.at("minutes"), "total", "MaxTRESRunMins")
	s.amounts(tres.at("minutes", "per"), "job", "MaxTRESMins")
	s.amounts(tres.at("per"), "job", "MaxTRES")
	s.amounts(tres.at("per"), "node", "MaxTRESPerNode")
	s.minutes(o.at("max", "per", "account"), "wall_clock", "GrpWall")
	s.limit(o.at("min"), "priority_threshold", "MinPrioThreshold")
	o.ignore("id", "lineage", "accounting") // they describe
	return s
}

// recordSettings reads assoc_rec_set, the flat form.
func recordSettings(o *object) (s settings) {
	if o == nil {
		return nil
	}
	s.text(o, "defaultqos", "DefaultQOS")
	if list, ok := o.list("qoslevel"); ok && len(list) > 0 {
		s.add("QosLevel", strings.Join(list, ","))
	}
	for _, x := range [][2]string{{"grpjobs", "GrpJobs"}, {"grpjobsaccrue", "GrpJobsAccrue"}, {"grpsubmitjobs",
		"GrpSubmitJobs"},
		{"maxjobs", "MaxJobs"}, {"maxjobsaccrue", "MaxJobsAccrue"}, {"maxsubmitjobs", "MaxSubmitJobs"},
		{"minpriothresh", "MinPrioThreshold"}, {"priority", "Priority"}} {
		s.limit(o, x[0], x[1])
	}
	for _, x := range [][2]string{{"grpwall", "GrpWall"}, {"maxwalldurationperjob", "MaxWall"}} {
		s.minutes(o, x[0], x[1])
	}
	for _, x := range [][2]string{{"grptres", "GrpTRES"}, {"grptresmins", "GrpTRESMins"}, {"grptresrunmins",
		"GrpTRESRunMins"},
		{"maxtresminsperjob", "MaxTRESMins"}, {"maxtresrunmins", "MaxTRESRunMins"}, {"maxtresperjob", "MaxTRES"},
		{"maxtrespernode", "MaxTRESPerNode"}} {
		s.amounts(o, x[0], x[1])
	}
	s.text(o, "comment", "Comment")
	if n := o.number("fairshare"); n.set && n.v != 0 {
		s.add("Fairshare", strconv.FormatInt(n.int(), 10))
	}
	return s
}

// qosSettings reads a QOS.
func qosSettings(o *object) (s settings) {
	s.text(o, "description", "Description")
	if flags, ok := o.list("flags"); ok && len(flags) > 0 {
		var list []string
		for _, f := range flags {
			if word := acctmgr.QOSFlag(f); word != "" {
				list = append(list, word)
			}
		}
		if len(list) > 0 {
			s.add("Flags", strings.Join(list, ","))
		}
	}
	s.limit(o, "priority", "Priority")
	for _, x := range [][2]string{{"usage_factor", "UsageFactor"}, {"usage_threshold", "UsageThreshold"}} {
		if n := o.number(x[0]); n.set {
			s.add(x[1], strconv.FormatFloat(n.v, 'f', -1, 64))
		}
	}
	if p := o.object("preempt"); p != nil {
		if list, ok := p.list("list"); ok && len(list) > 0 {
			s.add("Preempt", strings.Join(list, ","))
		}
		if modes, ok := p.list("mode"); ok && len(modes) > 0 && modes[0] != "DISABLED" {
			s.add("PreemptMode", strings.ToLower(modes[0]))
		}
		if n := p.number("exempt_time"); n.set {
			s.add("PreemptExemptTime", walltime.Elapsed(n.int()))
		}
	}
	limits := o.object("limits")
	if limits != nil {
		if n := limits.number("grace_time"); n.set && n.v > 0 {
			s.add("GraceTime", strconv.FormatInt(n.int(), 10))
		}
		if n := limits.number("factor"); n.set {
			s.add("LimitFactor", strconv.FormatFloat(n.v, 'f', -1, 64))
		}
	}
	most := limits.at("max")
	s.limit(most.at("active_jobs"), "accruing", "GrpJobsAccrue")
	s.limit(most.at("active_jobs"), "count", "GrpJobs")
	s.limit(most.at("jobs"), "count", "GrpSubmitJobs")
	s.limit(most.at("jobs", "active_jobs", "per"), "account", "MaxJobsPerAccount")
	s.limit(most.at("jobs", "active_jobs", "per"), "user", "MaxJobsPerUser")
	s.limit(most.at("jobs", "per"), "account", "MaxSubmitJobsPerAccount")
	s.limit(most.at("jobs", "per"), "user", "MaxSubmitJobsPerUser")
	s.limit(most.at("accruing", "per"), "account", "MaxJobsAccruePerAccount")
	s.limit(most.at("accruing", "per"), "user", "MaxJobsAccruePerUser")
	tres := most.at("tres")
	s.amounts(tres, "total", "GrpTRES")
	s.amounts(tres.at("minutes"), "total", "GrpTRESMins")
	s.amounts(tres.at("minutes", "per"), "qos", "GrpTRESRunMins")
	s.amounts(tres.at("minutes", "per"), "job", "MaxTRESMins")
	s.amounts(tres.at("minutes", "per"), "account", "MaxTRESRunMinsPerAccount")
	s.amounts(tres.at("minutes", "per"), "user", "MaxTRESRunMinsPerUser")
	s.amounts(tres.at("per"), "account", "MaxTRESPerAccount")
	s.amounts(tres.at("per"), "job", "MaxTRESPerJob")
	s.amounts(tres.at("per"), "node", "MaxTRESPerNode")
	s.amounts(tres.at("per"), "user", "MaxTRESPerUser")
	s.minutes(most.at("wall_clock", "per"), "qos", "GrpWall")
	s.minutes(most.at("wall_clock", "per"), "job", "MaxWall")
	s.limit(limits.at("min"), "priority_threshold", "MinPrioThreshold")
	s.amounts(limits.at("min", "tres", "per"), "job", "MinTRESPerJob")
	o.ignore("id") // it describes
	return s
}
