package acctmgr

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// attr is a field of a record that can be set and shown.
type attr[T any] struct {
	names []string // in lower case, the first is the one that the others stand for
	label string   // as plans name it
	set   func(f *Facts, t *T, op byte, v string) error
	get   func(t *T) string
}

// find gives the attribute of a key: by its full name, or the first one of which the key is a prefix of at least four
// letters.
func find[T any](list []attr[T], key string) *attr[T] {
	for i := range list {
		if slices.Contains(list[i].names, key) {
			return &list[i]
		}
	}
	for i := range list {
		if len(key) >= 4 && slices.ContainsFunc(list[i].names, func(n string) bool { return strings.HasPrefix(n, key) }) {
			return &list[i]
		}
	}
	return nil
}

var errPlain = errors.New("it takes = only, not += or -=")

// count is a limit on a number of jobs.
func count[T any](at func(*T) *model.Limit, label string, names ...string) attr[T] {
	return number(at, label, names, func(v string) (int64, error) {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return 0, fmt.Errorf("'%s' is not a whole number (-1 clears it)", v)
		}
		return int64(n), nil
	}, showLimit)
}

// number is a limit that is one number, as text that parse reads and show writes; -1 clears it.
func number[T any](at func(*T) *model.Limit, label string, names []string, parse func(string) (int64, error),
	show func(model.Limit) string) attr[T] {
	return attr[T]{names, label, func(_ *Facts, t *T, op byte, v string) error {
		if op != '=' {
			return errPlain
		}
		if v == "-1" || v == "" {
			*at(t) = 0
			return nil
		}
		n, err := parse(v)
		if err == nil {
			*at(t) = model.LimitOf(n)
		}
		return err
	}, func(t *T) string { return show(*at(t)) }}
}

func showLimit(l model.Limit) string {
	if n, set := l.Value(); set {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// wall is a limit on time.
func wall[T any](at func(*T) *model.Limit, label string, names ...string) attr[T] {
	return number(at, label, names, func(v string) (int64, error) {
		s, err := walltime.ParseDuration(v)
		return (s + 59) / 60 * 60, err
	}, func(l model.Limit) string {
		if s, set := l.Value(); set {
			return walltime.Elapsed(s)
		}
		return ""
	})
}

// tres is a list of limits on resources; only the named ones change.
func tres[T any](at func(*T) *[]model.TRESLimit, label string, names ...string) attr[T] {
	return attr[T]{names, label, func(f *Facts, t *T, op byte, v string) error {
		if op != '=' {
			return errPlain
		}
		if v == "" || v == "-1" {
			*at(t) = nil
			return nil
		}
		list, err := setTRES(f, *at(t), v)
		if err != nil {
			return err
		}
		if strings.Contains(strings.ToLower(label), "mins") &&
			slices.ContainsFunc(list, func(l model.TRESLimit) bool { return l.Percent }) {
			return fmt.Errorf("minutes have no whole to take a share of; write a number of minutes, or a share in GrpTRES")
		}
		*at(t) = list
		return nil
	}, func(t *T) string { return showTRES(*at(t)) }}
}

// oneTRES is an older name for a limit on a single resource, such as GrpCPUs.
func oneTRES[T any](at func(*T) *[]model.TRESLimit, resource string, names ...string) attr[T] {
	list := tres(at, names[0], names...)
	set := list.set
	list.set = func(f *Facts, t *T, op byte, v string) error {
		return set(f, t, op, resource+"="+or(v, "-1")) // GrpCPUs= clears it
	}
	list.get = func(t *T) string {
		for _, l := range *at(t) {
			if l.TRES == resource && !l.Percent {
				return strconv.FormatInt(l.Count, 10) // memory in MiB, as in Slurm
			} else if l.TRES == resource {
				return showTRESCount(l)
			}
		}
		return ""
	}
	return list
}

// setTRES reads cpu=4,gres/gpu=70%,mem=-1.
func setTRES(f *Facts, old []model.TRESLimit, v string) ([]model.TRESLimit, error) {
	out := slices.Clone(old)
	for item := range ask.Amounts(v) {
		name, n := item.TRES, item.Text
		if !item.Has || name == "" {
			return nil, fmt.Errorf("'%s' is not resource=number, as in cpu=10,gres/gpu=4", item.Word)
		}
		_, license := model.TRESLicense(name)
		if k := slices.IndexFunc(f.TRES, func(t string) bool { return strings.EqualFold(t, name) }); k >= 0 {
			name = f.TRES[k]
		} else if !license {
			if gres := model.GresTRES(name, ""); slices.Contains(f.TRES, gres) {
				return nil, fmt.Errorf("there is no resource %s; write %s=%s", name, gres, n)
			}
			return nil, fmt.Errorf("there is no resource %s here; gacctmgr show tres lists them", name)
		}
		if n == "-1" {
			out = slices.DeleteFunc(out, func(l model.TRESLimit) bool { return l.TRES == name })
			continue
		}
		if name == "energy" || license {
			return nil, fmt.Errorf(
				"jobs are not limited by %s here: it is not counted; limit cpu, mem, node, billing or gres/...", name)
		}
		l := model.TRESLimit{TRES: name}
		hundredths, percent, err := item.Percent()
		switch {
		case percent && name == "billing":
			return nil, fmt.Errorf("'%s': a cluster has no number of billing units to take a share of; write a number", n)
		case percent && err != nil:
			return nil, fmt.Errorf("'%s' is not a percentage from 0%% to 100%%", n)
		case percent:
			l.Count, l.Percent = hundredths, true
		default:
			if l.Count, err = item.Count(); err != nil {
				return nil, fmt.Errorf("'%s' is not an amount of %s (-1 clears it)", n, name)
			}
		}
		out = putTRES(out, l)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func showTRES(list []model.TRESLimit) string {
	var out []string
	for _, l := range list {
		out = append(out, l.TRES+"="+showTRESCount(l))
	}
	return strings.Join(out, ",")
}

func showTRESCount(l model.TRESLimit) string {
	switch {
	case l.Percent:
		return strconv.FormatFloat(float64(l.Count)/100, 'f', -1, 64) + "%"
	case l.TRES == "mem":
		return walltime.FormatRounded(l.Count)
	}
	return strconv.FormatInt(l.Count, 10)
}

// setNames changes a list of names of QOS: =, += or -=.
func setNames(f *Facts, old []string, op byte, v string) ([]string, error) {
	if op == '=' && (strings.HasPrefix(v, "+") || strings.HasPrefix(v, "-")) && v != "-1" { // QosLevel=+high
		op, v = v[0], v[1:]
	}
	list := names(v)
	for _, n := range list {
		if f.QOS[n] == nil {
			return nil, fmt.Errorf("there is no QOS %s; gacctmgr show qos lists them", n)
		}
	}
	out := slices.Clone(old)
	switch op {
	case '+':
		for _, n := range list {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	case '-':
		out = slices.DeleteFunc(out, func(n string) bool { return slices.Contains(list, n) })
	default:
		out = list
	}
	slices.Sort(out)
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

type assoc = model.Association

// showShares gives an association's shares; an account's association for a partition has none.
func showShares(a *assoc) string {
	switch {
	case a.Shares == model.ShareOfParent:
		return "parent"
	case a.OfPool():
		return ""
	}
	return strconv.FormatInt(a.Shares, 10)
}

// assocAttrs are the fields of an association that can be set.
func assocAttrs() []attr[assoc] {
	grp, grpMins := func(a *assoc) *[]model.TRESLimit { return &a.GrpTRES },
		func(a *assoc) *[]model.TRESLimit { return &a.GrpTRESMins }
	most, perJob := func(a *assoc) *[]model.TRESLimit { return &a.MaxTRESMins },
		func(a *assoc) *[]model.TRESLimit { return &a.MaxTRESPerJob }
	return []attr[assoc]{
		{[]string{"fairshare", "shares", "share"}, "Fairshare", func(_ *Facts, a *assoc, op byte, v string) error {
			switch {
			case op != '=':
				return errPlain
			case strings.EqualFold(v, "parent"):
				a.Shares = model.ShareOfParent
				return nil
			case v == "-1" || v == "":
				a.Shares = 1
				return nil
			}
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil || int64(n) == model.ShareOfParent {
				return fmt.Errorf("'%s' is not a number of shares, nor parent", v)
			}
			a.Shares = int64(n)
			return nil
		}, showShares},
		{[]string{"qoslevel", "qos"}, "QOS", func(f *Facts, a *assoc, op byte, v string) (err error) {
			old := a.QOS
			if op != '=' || strings.HasPrefix(v, "+") || strings.HasPrefix(v, "-") {
				old = f.effective(a).QOS
			}
			a.QOS, err = setNames(f, old, op, v)
			return err
		}, func(a *assoc) string { return strings.Join(a.QOS, ",") }},
		{[]string{"defaultqos", "defqos"}, "DefaultQOS", func(f *Facts, a *assoc, op byte, v string) error {
			v = strings.ToLower(v)
			switch {
			case op != '=':
				return errPlain
			case v == "-1":
				v = ""
			case v != "" && f.QOS[v] == nil:
				return fmt.Errorf("there is no QOS %s; gacctmgr show qos lists them", v)
			}
			a.DefQOS = v
			return nil
		}, func(a *assoc) string { return a.DefQOS }},
		count(func(a *assoc) *model.Limit { return &a.Priority }, "Priority", "priority"),
		count(func(a *assoc) *model.Limit { return &a.GrpJobs }, "GrpJobs", "grpjobs"),
		count(func(a *assoc) *model.Limit { return &a.GrpAccrue }, "GrpJobsAccrue", "grpjobsaccrue"),
		count(func(a *assoc) *model.Limit { return &a.GrpSubmit }, "GrpSubmitJobs", "grpsubmitjobs", "grpsubmit"),
		wall(func(a *assoc) *model.Limit { return &a.GrpWallS }, "GrpWall", "grpwall"),
		tres(grp, "GrpTRES", "grptres"),
		tres(grpMins, "GrpTRESMins", "grptresmins"),
		tres(func(a *assoc) *[]model.TRESLimit { return &a.GrpTRESRunMins }, "GrpTRESRunMins", "grptresrunmins"),
		tres(func(a *assoc) *[]model.TRESLimit { return &a.GuaranteedTRES }, "GuaranteedTRES", "guaranteedtres"),
		oneTRES(grp, "cpu", "grpcpus"), oneTRES(grp, "mem", "grpmemory", "grpmem"), oneTRES(grp, "node", "grpnodes"),
		oneTRES(grpMins, "cpu", "grpcpumins"),
		oneTRES(func(a *assoc) *[]model.TRESLimit { return &a.GrpTRESRunMins }, "cpu", "grpcpurunmins"),
		count(func(a *assoc) *model.Limit { return &a.MaxJobs }, "MaxJobs", "maxjobs"),
		count(func(a *assoc) *model.Limit { return &a.MaxAccrue }, "MaxJobsAccrue", "maxjobsaccrue"),
		count(func(a *assoc) *model.Limit { return &a.MaxSubmit }, "MaxSubmitJobs", "maxsubmitjobs", "maxsubmit"),
		wall(func(a *assoc) *model.Limit { return &a.MaxWallS }, "MaxWall", "maxwalldurationperjob", "maxwall"),
		tres(perJob, "MaxTRES", "maxtresperjob", "maxtres"),
		tres(func(a *assoc) *[]model.TRESLimit { return &a.MaxTRESPerNode }, "MaxTRESPerNode", "maxtrespernode"),
		tres(most, "MaxTRESMins", "maxtresminsperjob", "maxtresmins"),
		tres(func(a *assoc) *[]model.TRESLimit { return &a.MaxTRESRunMins }, "MaxTRESRunMins", "maxtresrunmins"),
		oneTRES(perJob, "cpu", "maxcpusperjob", "maxcpus"), oneTRES(perJob, "node", "maxnodesperjob", "maxnodes"),
		oneTRES(most, "cpu", "maxcpuminsperjob", "maxcpumins"),
		count(func(a *assoc) *model.Limit { return &a.MinPrioThresh }, "MinPrioThreshold", "minpriothreshold"),
	}
}

type qos = model.QOS

// qosAttrs are the fields of a QOS that can be set.
func qosAttrs() []attr[qos] {
	type list = []model.TRESLimit
	type limit = model.Limit
	return []attr[qos]{
		{[]string{"description"}, "Description",
			func(_ *Facts, q *qos, _ byte, v string) error { q.Description = v; return nil },
			func(q *qos) string { return q.Description }},
		{[]string{"priority"}, "Priority", func(_ *Facts, q *qos, op byte, v string) error {
			n, err := strconv.ParseUint(v, 10, 31)
			switch {
			case op != '=':
				return errPlain
			case v == "-1":
				n = 0
			case err != nil:
				return fmt.Errorf("'%s' is not a whole number", v)
			}
			q.Priority = uint32(n)
			return nil
		}, func(q *qos) string { return strconv.FormatUint(uint64(q.Priority), 10) }},
		{[]string{"flags"}, "Flags", setFlags, func(q *qos) string { return q.Flags.String() }},
		{[]string{"preempt"}, "Preempt", func(f *Facts, q *qos, op byte, v string) (err error) {
			q.Preempt, err = setNames(f, q.Preempt, op, v)
			return err
		}, func(q *qos) string { return strings.Join(q.Preempt, ",") }},
		{[]string{"preemptmode"}, "PreemptMode", func(_ *Facts, q *qos, op byte, v string) error {
			switch v = strings.ToUpper(v); v {
			case "", "CLUSTER":
				q.PreemptMode = ""
			case "CANCEL", "REQUEUE", "OFF", "SUSPEND":
				q.PreemptMode = v
			default:
				return fmt.Errorf("'%s' is no mode here; write CANCEL, REQUEUE, SUSPEND, OFF or cluster", v)
			}
			return nil
		}, func(q *qos) string {
			if q.PreemptMode == "" {
				return "cluster"
			}
			return strings.ToLower(q.PreemptMode)
		}},
		{[]string{"gracetime"}, "GraceTime", func(_ *Facts, q *qos, op byte, v string) error {
			n, err := strconv.ParseUint(v, 10, 31) // seconds, as in Slurm
			if v == "-1" {
				n, err = 0, nil
			}
			if err != nil || op != '=' {
				return fmt.Errorf("'%s' is not a number of seconds", v)
			}
			q.GraceTimeS = int64(n)
			return nil
		}, func(q *qos) string { return walltime.Elapsed(q.GraceTimeS) }},
		wall(func(q *qos) *limit { return &q.PreemptExemptTimeS }, "PreemptExemptTime", "preemptexempttime"),
		factor(func(q *qos) (int64, bool) { return q.UsageFactor, true }, func(q *qos, n int64, set bool) {
			if q.UsageFactor = n; !set {
				q.UsageFactor = model.FactorOne
			}
		}, "UsageFactor", "usagefactor"),
		factor(func(q *qos) (int64, bool) { return q.UsageThreshold.Value() }, func(q *qos, n int64, set bool) {
			if q.UsageThreshold = 0; set {
				q.UsageThreshold = model.LimitOf(n)
			}
		}, "UsageThreshold", "usagethreshold"),
		factor(func(q *qos) (int64, bool) { return q.LimitFactor, q.LimitFactor != 0 },
			func(q *qos, n int64, _ bool) { q.LimitFactor = n }, "LimitFactor", "limitfactor"),
		count(func(q *qos) *limit { return &q.MinPrioThresh }, "MinPrioThreshold", "minpriothreshold"),
		count(func(q *qos) *limit { return &q.GrpJobs }, "GrpJobs", "grpjobs"),
		count(func(q *qos) *limit { return &q.GrpAccrue }, "GrpJobsAccrue", "grpjobsaccrue"),
		count(func(q *qos) *limit { return &q.GrpSubmit }, "GrpSubmitJobs", "grpsubmitjobs", "grpsubmit"),
		wall(func(q *qos) *limit { return &q.GrpWallS }, "GrpWall", "grpwall"),
		tres(func(q *qos) *list { return &q.GrpTRES }, "GrpTRES", "grptres"),
		tres(func(q *qos) *list { return &q.GrpTRESMins }, "GrpTRESMins", "grptresmins"),
		tres(func(q *qos) *list { return &q.GrpTRESRunMins }, "GrpTRESRunMins", "grptresrunmins"),
		tres(func(q *qos) *list { return &q.GuaranteedTRES }, "GuaranteedTRES", "guaranteedtres"),
		// Slurm's names from before there were TRES.
		oneTRES(func(q *qos) *list { return &q.GrpTRES }, "cpu", "grpcpus"),
		oneTRES(func(q *qos) *list { return &q.GrpTRES }, "node", "grpnodes"),
		oneTRES(func(q *qos) *list { return &q.GrpTRES }, "mem", "grpmemory", "grpmem"),
		oneTRES(func(q *qos) *list { return &q.GrpTRESMins }, "cpu", "grpcpumins"),
		oneTRES(func(q *qos) *list { return &q.GrpTRESRunMins }, "cpu", "grpcpurunmins"),
		oneTRES(func(q *qos) *list { return &q.MaxTRESPerJob }, "cpu", "maxcpusperjob", "maxcpus"),
		oneTRES(func(q *qos) *list { return &q.MaxTRESPerJob }, "node", "maxnodesperjob", "maxnodes"),
		oneTRES(func(q *qos) *list { return &q.MaxTRESMins }, "cpu", "maxcpuminsperjob", "maxcpumins"),
		oneTRES(func(q *qos) *list { return &q.MinTRES }, "cpu", "mincpusperjob", "mincpus"),
		oneTRES(func(q *qos) *list { return &q.MaxTRESPerUser }, "cpu", "maxcpusperuser", "maxcpuspu"),
		oneTRES(func(q *qos) *list { return &q.MaxTRESPerUser }, "node", "maxnodesperuser", "maxnodespu"),
		oneTRES(func(q *qos) *list { return &q.MaxTRESRunMinsPerUser }, "cpu", "maxcpurunminsperuser", "maxcpurunminspu"),
		wall(func(q *qos) *limit { return &q.MaxWallS }, "MaxWall", "maxwalldurationperjob", "maxwall"),
		tres(func(q *qos) *list { return &q.MaxTRESPerJob }, "MaxTRES", "maxtresperjob", "maxtres"),
		tres(func(q *qos) *list { return &q.MaxTRESPerNode }, "MaxTRESPerNode", "maxtrespernode"),
		tres(func(q *qos) *list { return &q.MaxTRESMins }, "MaxTRESMins", "maxtresminsperjob", "maxtresmins"),
		tres(func(q *qos) *list { return &q.MinTRES }, "MinTRES", "mintresperjob", "mintres"),
		tres(func(q *qos) *list { return &q.MaxTRESPerUser }, "MaxTRESPU", "maxtresperuser", "maxtrespu"),
		count(func(q *qos) *limit { return &q.MaxJobsPerUser }, "MaxJobsPU", "maxjobsperuser", "maxjobspu"),
		count(func(q *qos) *limit { return &q.MaxAccruePerUser }, "MaxJobsAccruePU", "maxjobsaccrueperuser",
			"maxjobsaccruepu"),
		count(func(q *qos) *limit { return &q.MaxSubmitPerUser }, "MaxSubmitPU", "maxsubmitjobsperuser", "maxsubmitjobspu",
			"maxsubmitpu", "maxsubmitperuser"),
		tres(func(q *qos) *list { return &q.MaxTRESRunMinsPerUser }, "MaxTRESRunMinsPU", "maxtresrunminsperuser",
			"maxtresrunminspu"),
		tres(func(q *qos) *list { return &q.MaxTRESPerAccount }, "MaxTRESPA", "maxtresperaccount", "maxtrespa",
			"maxtresperacct"),
		count(func(q *qos) *limit { return &q.MaxJobsPerAccount }, "MaxJobsPA", "maxjobsperaccount", "maxjobspa",
			"maxjobsperacct"),
		count(func(q *qos) *limit { return &q.MaxAccruePerAccount }, "MaxJobsAccruePA", "maxjobsaccrueperaccount",
			"maxjobsaccruepa", "maxjobsaccrueperacct"),
		count(func(q *qos) *limit { return &q.MaxSubmitPerAccount }, "MaxSubmitPA", "maxsubmitjobsperaccount",
			"maxsubmitjobspa", "maxsubmitpa", "maxsubmitperaccount", "maxsubmitjobsperacct", "maxsubmitperacct"),
		tres(func(q *qos) *list { return &q.MaxTRESRunMinsPerAcct }, "MaxTRESRunMinsPA", "maxtresrunminsperaccount",
			"maxtresrunminspa", "maxtresrunminsperacct"),
	}
}

// factor is a number with decimals, kept in millionths; -1 clears it.
func factor[T any](get func(*T) (int64, bool), put func(*T, int64, bool), label string, names ...string) attr[T] {
	return attr[T]{names, label, func(_ *Facts, t *T, op byte, v string) error {
		if op != '=' {
			return errPlain
		}
		if v == "-1" || v == "" {
			put(t, 0, false)
			return nil
		}
		x, err := strconv.ParseFloat(v, 64)
		if err != nil || !(x >= 0 && x <= 1e6) {
			return fmt.Errorf("'%s' is not a number from 0 to 1000000", v)
		}
		put(t, int64(math.Round(x*float64(model.FactorOne))), true)
		return nil
	}, func(t *T) string {
		n, set := get(t)
		if !set {
			return ""
		}
		return strconv.FormatFloat(float64(n)/float64(model.FactorOne), 'f', 6, 64)
	}}
}

func setFlags(_ *Facts, q *qos, op byte, v string) error {
	var flags model.QOSFlags
	if v != "-1" && v != "" {
		for _, n := range strings.Split(v, ",") {
			bit, ok := model.QOSFlag(strings.TrimSpace(n))
			if !ok {
				return fmt.Errorf("'%s' is no flag; there are %s", n, strings.Join(model.QOSFlagNames(), ", "))
			}
			flags |= bit
		}
	}
	switch op {
	case '+':
		flags |= q.Flags
	case '-':
		flags = q.Flags &^ flags
	}
	q.Flags = flags
	return nil
}
