package rest

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/acctmgr"
	"gbatch/internal/model"
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

// at gives an object inside of others; nil: there is none.
func (o *object) at(names ...string) *object {
	for _, n := range names {
		if o == nil {
			return nil
		}
		o = o.object(n)
	}
	return o
}

// limits adds limits from where they stand in an object.
func (s *settings) limits(o *object, list []acctmgr.Limit) {
	for _, l := range list {
		words := strings.Split(l.Path, "/")
		last := len(words) - 1
		s.kind(o.at(words[:last]...), words[last], l.Key, l.Kind)
	}
}

func (s *settings) kind(o *object, name, key string, kind acctmgr.Kind) {
	switch kind {
	case acctmgr.Minutes:
		s.minutes(o, name, key)
	case acctmgr.Amounts:
		s.amounts(o, name, key)
	default:
		s.limit(o, name, key)
	}
}

// shares adds Fairshare. What is written of an association that has its parent's shares is read as that.
func (s *settings) shares(o *object, name string) {
	n := o.number(name)
	switch {
	case n.set && n.int() == model.ShareOfParent:
		s.add("Fairshare", "parent")
	case n.set && n.v > 0:
		s.add("Fairshare", strconv.FormatInt(n.int(), 10))
	}
}

// assocSettings reads the limits of an association.
func assocSettings(o *object) (s settings) {
	s.text(o.at("default"), "qos", "DefaultQOS")
	if list, ok := o.list("qos"); ok && len(list) > 0 {
		s.add("QosLevel", strings.Join(list, ","))
	}
	s.shares(o, "shares_raw")
	s.text(o, "comment", "Comment")
	s.limits(o, acctmgr.AssocLimits())
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
	s.shares(o, "fairshare")
	return s
}

// qosSettings reads a QOS.
func qosSettings(o *object) (s settings) {
	s.text(o, "description", "Description")
	s.flags(o)
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
	s.limits(o, acctmgr.QOSLimits())
	o.ignore("id") // it describes
	return s
}

// flags adds a QOS's flags: with ADD or REMOVE among the words the others are added or removed, otherwise the QOS has
// these. gbatch's own flags stand beside Slurm's, and stay where they are not sent.
func (s *settings) flags(o *object) {
	words, given := o.list("flags")
	own, ownGiven := o.at("gbatch").listOf("flags")
	names := map[string]bool{}
	sign, unset := "", false
	for _, w := range slices.Concat(words, own) {
		switch up := strings.ToUpper(w); up {
		case "ADD", "REMOVE":
			if sign != "" && sign != up {
				o.fail("flags", "ADD or REMOVE", words)
			}
			sign = up
		case "NOT_SET", "":
			unset = true
		default:
			name := acctmgr.QOSFlag(w)
			if name == "" {
				o.refuse("flags: '" + w + "' is no flag of a QOS here; there are " + strings.Join(acctmgr.QOSFlagWords(), ", "))
				return
			}
			names[name] = true
		}
	}
	if !ownGiven && len(words) == 0 || len(names) == 0 && unset {
		return // nothing is said
	}
	var has, others []string
	for _, name := range model.QOSFlagNames() {
		switch {
		case names[name]:
			has = append(has, name)
		case acctmgr.OwnQOSFlag(name) && ownGiven, !acctmgr.OwnQOSFlag(name) && given:
			others = append(others, name)
		}
	}
	switch {
	case sign == "REMOVE":
		has, others = nil, has
	case sign == "ADD":
		others = nil
	}
	if len(has) > 0 {
		*s = append(*s, "Flags+="+strings.Join(has, ","))
	}
	if len(others) > 0 {
		*s = append(*s, "Flags-="+strings.Join(others, ","))
	}
}
