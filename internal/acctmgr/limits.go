package acctmgr

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// limits.go is where the limits of associations and QOS stand in slurmdb's objects, once for writing and reading them.

// Kind is what a limit is made of.
type Kind uint8

const (
	Count   Kind = iota // a number
	Minutes             // a span, in minutes
	Amounts             // a list of resources
)

// Limit is a limit's place in an object, its words with / between, and its key as gacctmgr takes it.
type Limit struct {
	Path, Key string
	Kind      Kind
}

// AssocLimits and QOSLimits list the limits of the objects.
func AssocLimits() []Limit { return limitsOf(assocLimits()) }
func QOSLimits() []Limit   { return limitsOf(qosLimits()) }

func limitsOf[T any](list []place[T]) (out []Limit) {
	for _, p := range list {
		out = append(out, p.Limit)
	}
	return out
}

// place is a limit with where its value comes from: one of the functions.
type place[T any] struct {
	Limit
	n    func(x *T) model.Limit // of a span: seconds
	list func(x *T) []model.TRESLimit
}

func jobs[T any](path, key string, get func(x *T) model.Limit) place[T] {
	return place[T]{Limit{path, key, Count}, get, nil}
}

func span[T any](path, key string, get func(x *T) model.Limit) place[T] {
	return place[T]{Limit{path, key, Minutes}, get, nil}
}

func amounts[T any](path, key string, get func(x *T) []model.TRESLimit) place[T] {
	return place[T]{Limit{path, key, Amounts}, nil, get}
}

// field is the member of that name.
func (p *place[T]) field(name string) slurmjson.Field[of[T]] {
	if p.Kind == Amounts {
		return slurmjson.ListOf(name, func(x *of[T], add func(*tresOf)) {
			list := p.list(x.is)
			for i := range list {
				add(&tresOf{&list[i], x.f})
			}
		}, tresJSON())
	}
	unit := int64(1)
	if p.Kind == Minutes {
		unit = 60
	}
	return slurmjson.Field[of[T]]{Name: name, Num: func(x *of[T]) (int64, bool, bool) {
		n, set := p.n(x.is).Value()
		return max(n/unit, 0), set, !set
	}}
}

// placeOf gives the member at a path.
func placeOf[T any](list []place[T], path string) slurmjson.Field[of[T]] {
	i := slices.IndexFunc(list, func(p place[T]) bool { return p.Path == path })
	return list[i].field(path)
}

// nested gives the members below a path.
func nested[T any](list []place[T], above string) (out []slurmjson.Field[of[T]]) {
	for i := range list {
		below, is := strings.CutPrefix(list[i].Path, above)
		name, _, more := strings.Cut(below, "/")
		switch {
		case !is, slices.ContainsFunc(out, func(f slurmjson.Field[of[T]]) bool { return f.Name == name }):
		case more:
			out = append(out, slurmjson.Field[of[T]]{Name: name, Fields: nested(list, above+name+"/")})
		default:
			out = append(out, list[i].field(name))
		}
	}
	return out
}

func assocLimits() []place[model.Association] {
	type a = model.Association
	type n = model.Limit
	type list = []model.TRESLimit
	return []place[a]{
		jobs("priority", "Priority", func(x *a) n { return x.Priority }),
		jobs("max/jobs/per/count", "GrpJobs", func(x *a) n { return x.GrpJobs }),
		jobs("max/jobs/per/accruing", "GrpJobsAccrue", func(x *a) n { return x.GrpAccrue }),
		jobs("max/jobs/per/submitted", "GrpSubmitJobs", func(x *a) n { return x.GrpSubmit }),
		span("max/jobs/per/wall_clock", "MaxWall", func(x *a) n { return x.MaxWallS }),
		jobs("max/jobs/active", "MaxJobs", func(x *a) n { return x.MaxJobs }),
		jobs("max/jobs/accruing", "MaxJobsAccrue", func(x *a) n { return x.MaxAccrue }),
		jobs("max/jobs/total", "MaxSubmitJobs", func(x *a) n { return x.MaxSubmit }),
		amounts("max/tres/total", "GrpTRES", func(x *a) list { return x.GrpTRES }),
		amounts("max/tres/group/minutes", "GrpTRESMins", func(x *a) list { return x.GrpTRESMins }),
		amounts("max/tres/group/active", "GrpTRESRunMins", func(x *a) list { return x.GrpTRESRunMins }),
		amounts("max/tres/minutes/total", "MaxTRESRunMins", func(x *a) list { return x.MaxTRESRunMins }),
		amounts("max/tres/minutes/per/job", "MaxTRESMins", func(x *a) list { return x.MaxTRESMins }),
		amounts("max/tres/per/job", "MaxTRES", func(x *a) list { return x.MaxTRESPerJob }),
		amounts("max/tres/per/node", "MaxTRESPerNode", func(x *a) list { return x.MaxTRESPerNode }),
		span("max/per/account/wall_clock", "GrpWall", func(x *a) n { return x.GrpWallS }),
		jobs("min/priority_threshold", "MinPrioThreshold", func(x *a) n { return x.MinPrioThresh }),
	}
}

func qosLimits() []place[model.QOS] {
	type q = model.QOS
	type n = model.Limit
	type list = []model.TRESLimit
	const most, least = "limits/max/", "limits/min/"
	return []place[q]{
		jobs(most+"active_jobs/accruing", "GrpJobsAccrue", func(x *q) n { return x.GrpAccrue }),
		jobs(most+"active_jobs/count", "GrpJobs", func(x *q) n { return x.GrpJobs }),
		jobs(most+"jobs/count", "GrpSubmitJobs", func(x *q) n { return x.GrpSubmit }),
		jobs(most+"jobs/active_jobs/per/account", "MaxJobsPerAccount", func(x *q) n { return x.MaxJobsPerAccount }),
		jobs(most+"jobs/active_jobs/per/user", "MaxJobsPerUser", func(x *q) n { return x.MaxJobsPerUser }),
		jobs(most+"jobs/per/account", "MaxSubmitJobsPerAccount", func(x *q) n { return x.MaxSubmitPerAccount }),
		jobs(most+"jobs/per/user", "MaxSubmitJobsPerUser", func(x *q) n { return x.MaxSubmitPerUser }),
		jobs(most+"accruing/per/account", "MaxJobsAccruePerAccount", func(x *q) n { return x.MaxAccruePerAccount }),
		jobs(most+"accruing/per/user", "MaxJobsAccruePerUser", func(x *q) n { return x.MaxAccruePerUser }),
		amounts(most+"tres/total", "GrpTRES", func(x *q) list { return x.GrpTRES }),
		amounts(most+"tres/minutes/total", "GrpTRESMins", func(x *q) list { return x.GrpTRESMins }),
		amounts(most+"tres/minutes/per/qos", "GrpTRESRunMins", func(x *q) list { return x.GrpTRESRunMins }),
		amounts(most+"tres/minutes/per/job", "MaxTRESMins", func(x *q) list { return x.MaxTRESMins }),
		amounts(most+"tres/minutes/per/account", "MaxTRESRunMinsPerAccount",
			func(x *q) list { return x.MaxTRESRunMinsPerAcct }),
		amounts(most+"tres/minutes/per/user", "MaxTRESRunMinsPerUser", func(x *q) list { return x.MaxTRESRunMinsPerUser }),
		amounts(most+"tres/per/account", "MaxTRESPerAccount", func(x *q) list { return x.MaxTRESPerAccount }),
		amounts(most+"tres/per/job", "MaxTRESPerJob", func(x *q) list { return x.MaxTRESPerJob }),
		amounts(most+"tres/per/node", "MaxTRESPerNode", func(x *q) list { return x.MaxTRESPerNode }),
		amounts(most+"tres/per/user", "MaxTRESPerUser", func(x *q) list { return x.MaxTRESPerUser }),
		span(most+"wall_clock/per/qos", "GrpWall", func(x *q) n { return x.GrpWallS }),
		span(most+"wall_clock/per/job", "MaxWall", func(x *q) n { return x.MaxWallS }),
		jobs(least+"priority_threshold", "MinPrioThreshold", func(x *q) n { return x.MinPrioThresh }),
		amounts(least+"tres/per/job", "MinTRESPerJob", func(x *q) list { return x.MinTRES }),
	}
}
