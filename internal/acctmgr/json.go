package acctmgr

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// gacctmgr show ... --json: the objects of slurmdb's data_parser, as tables of fields.

// of is a record with its facts.
type of[T any] struct {
	is *T
	f  *Facts
}

// The rows of the tables.
type (
	accountOf = of[model.Account]
	userOf    = of[model.User]
	assocOf   = of[model.Association]
	qosOf     = of[model.QOS]
	wckeyOf   = of[model.WCKey]
	tresOf    = of[model.TRESLimit]
)

// WriteJSON writes the records of a command into an open list.
func WriteJSON(w *slurmjson.Writer, f *Facts, p *Picked) {
	writeEach(w, f, p.Accounts, accountJSON())
	writeEach(w, f, p.Users, userJSON())
	writeEach(w, f, p.Assocs, assocJSON())
	writeEach(w, f, p.QOS, qosJSON())
	writeEach(w, f, p.WCKeys, wckeyJSON())
	var tres []*model.TRESLimit
	for _, t := range p.TRES {
		tres = append(tres, &model.TRESLimit{TRES: t})
	}
	writeEach(w, f, tres, tresJSON())
	if p.Entity == "clusters" {
		slurmjson.Write(w, "", clusterJSON(), f)
	}
}

func writeEach[T any](w *slurmjson.Writer, f *Facts, list []*T, fields []slurmjson.Field[of[T]]) {
	for _, x := range list {
		slurmjson.Write(w, "", fields, &of[T]{x, f})
		w.Flush(false)
	}
}

// realFactor is a number in millionths.
func realFactor[T any](name string, get func(x *T) (n int64, set bool)) slurmjson.Field[of[T]] {
	return slurmjson.Field[of[T]]{Name: name, Real: func(x *of[T]) (float64, bool) {
		n, set := get(x.is)
		return float64(n) / float64(model.FactorOne), set
	}}
}

// text is a member of a record that needs no other facts.
func text[T any](name string, get func(x *T) string) slurmjson.Field[of[T]] {
	return slurmjson.Field[of[T]]{Name: name, Str: func(x *of[T]) string { return get(x.is) }}
}

func tresJSON() []slurmjson.Field[tresOf] {
	part := func(k int) func(l *tresOf) string {
		return func(l *tresOf) string {
			typ, name, _ := strings.Cut(l.is.TRES, "/")
			return [...]string{typ, name}[k]
		}
	}
	return []slurmjson.Field[tresOf]{
		{Name: "type", Str: part(0)},
		{Name: "name", Str: part(1)},
		{Name: "id", Int: func(l *tresOf) int64 { return l.f.TRESID(l.is.TRES) }},
		{Name: "count", Int: func(l *tresOf) int64 { return l.is.Count }},
		// gbatch's own: count is hundredths of a percent of the cluster.
		{Name: "percent", If: func(l *tresOf) bool { return l.is.Percent }, Bool: func(*tresOf) bool { return true }},
	}
}

// refJSON is an association's name.
func refJSON() []slurmjson.Field[assocOf] {
	return []slurmjson.Field[assocOf]{
		text("account", func(a *model.Association) string { return a.Account }),
		{Name: "cluster", Str: func(a *assocOf) string { return a.f.Cluster }},
		text("partition", func(a *model.Association) string { return a.Partition }),
		text("user", func(a *model.Association) string { return a.User }),
		{Name: "id", Int: func(a *assocOf) int64 { return int64(a.is.ID) }},
	}
}

// refs is a list of associations of an account or a user.
func refs[T any](get func(x *of[T]) []*model.Association) slurmjson.Field[of[T]] {
	return slurmjson.ListOf("associations", func(x *of[T], add func(*assocOf)) {
		for _, a := range get(x) {
			add(&assocOf{a, x.f})
		}
	}, refJSON())
}

// coordinators is a list of users, or of accounts.
func coordinators[T any](get func(x *of[T]) []string) slurmjson.Field[of[T]] {
	return slurmjson.ListOf("coordinators", func(x *of[T], add func(*string)) {
		for _, name := range get(x) {
			add(&name)
		}
	}, []slurmjson.Field[string]{
		{Name: "name", Str: func(name *string) string { return *name }},
		{Name: "direct", Bool: func(*string) bool { return true }},
	})
}

func accountJSON() []slurmjson.Field[accountOf] {
	return []slurmjson.Field[accountOf]{
		refs(func(a *accountOf) []*model.Association { return a.f.Associations(a.is.Name, "") }),
		coordinators(func(a *accountOf) []string { return a.is.Coordinators }),
		text("description", func(a *model.Account) string { return a.Description }),
		text("name", func(a *model.Account) string { return a.Name }),
		text("organization", func(a *model.Account) string { return a.Organization }),
		{Name: "flags", Type: slurmjson.List},
	}
}

func userJSON() []slurmjson.Field[userOf] {
	type fields = []slurmjson.Field[userOf]
	return fields{
		{Name: "administrator_level", Words: func(u *userOf) []string { return []string{u.is.Admin.String()} }},
		refs(func(u *userOf) []*model.Association { return u.f.Associations("", u.is.Name) }),
		coordinators(coordinated),
		{Name: "default", Fields: fields{
			text("account", func(u *model.User) string { return u.DefaultAccount }),
			text("wckey", func(u *model.User) string { return u.DefaultWCKey }),
			{Name: "qos", Since: "v0.0.44", Type: slurmjson.Integer},
		}},
		{Name: "flags", Type: slurmjson.List},
		text("name", func(u *model.User) string { return u.Name }),
		{Name: "old_name"},
		slurmjson.ListOf("wckeys", func(u *userOf, add func(*wckeyOf)) {
			for _, w := range u.f.keys[u.is.Name] {
				add(&wckeyOf{w, u.f})
			}
		}, wckeyJSON()),
	}
}

// coordinated gives the accounts that a user coordinates.
func coordinated(u *userOf) []string {
	var over []string
	for name, a := range u.f.Accounts {
		if slices.Contains(a.Coordinators, u.is.Name) {
			over = append(over, name)
		}
	}
	slices.Sort(over)
	return over
}

func assocJSON() []slurmjson.Field[assocOf] {
	type assoc = model.Association
	type fields = []slurmjson.Field[assocOf]
	return fields{
		{Name: "accounting", Type: slurmjson.List},
		text("account", func(a *assoc) string { return a.Account }),
		{Name: "cluster", Str: func(a *assocOf) string { return a.f.Cluster }},
		{Name: "comment"},
		{Name: "default", Fields: fields{text("qos", func(a *assoc) string { return a.DefQOS })}},
		{Name: "flags", Type: slurmjson.List},
		{Name: "id", In: slurmjson.InOld, Fields: refJSON()},
		{Name: "id", In: slurmjson.InNew, Int: func(a *assocOf) int64 { return int64(a.is.ID) }},
		{Name: "is_default", Bool: func(a *assocOf) bool {
			u := a.f.Users[a.is.User]
			return u != nil && u.DefaultAccount == a.is.Account
		}},
		{Name: "lineage", Str: func(a *assocOf) string { return a.f.lineage(a.is) }},
		{Name: "max", Fields: nested(assocLimits(), "max/")},
		{Name: "min", Fields: nested(assocLimits(), "min/")},
		{Name: "parent_account", Str: func(a *assocOf) string {
			if a.is.User == "" {
				return a.f.Parent(a.is.Account)
			}
			return a.is.Account
		}},
		text("partition", func(a *assoc) string { return a.Partition }),
		placeOf(assocLimits(), "priority"),
		{Name: "qos", List: func(a *assocOf) []string { return a.is.QOS }},
		{Name: "shares_raw", Int: func(a *assocOf) int64 { return a.is.Shares }},
		text("user", func(a *assoc) string { return a.User }),
	}
}

// lineage is the path from the root to an association: /physics/0-ann/, with the partition after the user.
func (f *Facts) lineage(a *model.Association) string {
	text := ""
	for up, n := a.Account, 0; up != "" && up != model.RootAccount && n <= len(f.Accounts); up, n = f.Parent(up), n+1 {
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

func qosJSON() []slurmjson.Field[qosOf] {
	type qos = model.QOS
	type fields = []slurmjson.Field[qosOf]
	return fields{
		text("description", func(q *qos) string { return q.Description }),
		{Name: "flags", List: func(q *qosOf) []string { return qosFlagsJSON(q.is, false) }},
		{Name: "gbatch", If: func(q *qosOf) bool { return len(qosFlagsJSON(q.is, true)) > 0 }, Fields: fields{
			{Name: "flags", List: func(q *qosOf) []string { return qosFlagsJSON(q.is, true) }}}},
		{Name: "id", Int: func(q *qosOf) int64 { return int64(q.is.ID) }},
		{Name: "limits", Fields: fields{
			{Name: "grace_time", Int: func(q *qosOf) int64 { return q.is.GraceTimeS }},
			{Name: "max", Fields: nested(qosLimits(), "limits/max/")},
			realFactor("factor", func(q *qos) (int64, bool) { return q.LimitFactor, q.LimitFactor != 0 }),
			{Name: "min", Fields: nested(qosLimits(), "limits/min/")},
		}},
		text("name", func(q *qos) string { return q.Name }),
		{Name: "preempt", Fields: fields{
			{Name: "list", List: func(q *qosOf) []string { return q.is.Preempt }},
			{Name: "mode", Words: func(q *qosOf) []string { return []string{cmp.Or(q.is.PreemptMode, "DISABLED")} }},
			{Name: "exempt_time", Num: func(q *qosOf) (int64, bool, bool) {
				n, set := q.is.PreemptExemptTimeS.Value()
				return max(n, 0), set, false
			}},
		}},
		{Name: "priority", Count: func(q *qosOf) int64 { return int64(q.is.Priority) }},
		realFactor("usage_factor", func(q *qos) (int64, bool) { return q.UsageFactor, true }),
		realFactor("usage_threshold", func(q *qos) (int64, bool) { return q.UsageThreshold.Value() }),
	}
}

// qosFlagsJSON gives a QOS's flags in data_parser's words: Slurm's, or gbatch's own.
func qosFlagsJSON(q *model.QOS, own bool) (flags []string) {
	for name := range strings.SplitSeq(q.Flags.String(), ",") {
		if word := qosFlagWords[name]; word != "" && OwnQOSFlag(name) == own {
			flags = append(flags, word)
		}
	}
	return flags
}

// qosFlagWords are data_parser's words for the flags of QOS, and gbatch's in the same manner.
var qosFlagWords = map[string]string{"DenyOnLimit": "DENY_LIMIT", "EnforceUsageThreshold": "ENFORCE_USAGE_THRESHOLD",
	"NoReserve": "NO_RESERVE", "PartitionMaxNodes": "PARTITION_MAXIMUM_NODE",
	"PartitionMinNodes": "PARTITION_MINIMUM_NODE", "OverPartQOS": "OVERRIDE_PARTITION_QOS",
	"PartitionTimeLimit": "PARTITION_TIME_LIMIT", "RequiresReservation": "REQUIRED_RESERVATION", "NoDecay": "NO_DECAY",
	"UsageFactorSafe": "USAGE_FACTOR_SAFE", "Relative": "RELATIVE",
	"NoPreempt": "NO_PREEMPT", "Headroom": "HEADROOM", "GpuIdleOK": "GPU_IDLE_OK"}

// OwnQOSFlag reports whether a flag is gbatch's own: data_parser has no word for it, and strict clients refuse a list
// with others.
func OwnQOSFlag(name string) bool {
	return name == "NoPreempt" || name == "Headroom" || name == "GpuIdleOK"
}

// QOSFlag gives gacctmgr's name of a flag for data_parser's word, or ""; a name stays as it is.
func QOSFlag(word string) string {
	for _, name := range model.QOSFlagNames() {
		if strings.EqualFold(name, word) || qosFlagWords[name] == strings.ToUpper(word) {
			return name
		}
	}
	return ""
}

// QOSFlagWords lists data_parser's words, and gbatch's.
func QOSFlagWords() (out []string) {
	for _, name := range model.QOSFlagNames() {
		out = append(out, qosFlagWords[name])
	}
	return out
}

// address gives the controller's host and port; port 0 if the controller gives none.
func (f *Facts) address() (host string, port int64) {
	host = f.Addr
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		port, _ = strconv.ParseInt(host[i+1:], 10, 32)
		host = strings.Trim(host[:i], "[]")
	}
	return host, port
}

func clusterJSON() []slurmjson.Field[Facts] {
	type fields = []slurmjson.Field[Facts]
	ref := refJSON()
	return fields{
		{Name: "controller", Fields: fields{
			{Name: "host", Str: func(f *Facts) string { host, _ := f.address(); return host }},
			{Name: "port", Int: func(f *Facts) int64 { _, port := f.address(); return port }},
		}},
		{Name: "flags", Type: slurmjson.List},
		{Name: "name", Str: func(f *Facts) string { return f.Cluster }},
		{Name: "nodes", Str: func(f *Facts) string { return f.Nodes }},
		{Name: "associations", Fields: fields{{Name: "root", Put: func(w *slurmjson.Writer, name string, f *Facts) {
			for _, a := range f.Associations(model.RootAccount, "") {
				if a.User == "" {
					slurmjson.Write(w, name, ref, &assocOf{a, f})
				}
			}
		}, Inner: func() []string { return slurmjson.Describe(ref) }}}},
		{Name: "rpc_version", Type: slurmjson.Integer},
		{Name: "select_plugin"},
		slurmjson.ListOf("tres", func(f *Facts, add func(*tresOf)) {
			for i := range f.Has {
				add(&tresOf{&model.TRESLimit{TRES: f.Has[i].TRES, Count: f.Has[i].Count}, f})
			}
		}, tresJSON()),
	}
}

// Schema gives the OpenAPI schema of an entity's objects.
func Schema(entity, ver string) map[string]any {
	switch entity {
	case "accounts":
		return slurmjson.Schema(accountJSON(), ver)
	case "users":
		return slurmjson.Schema(userJSON(), ver)
	case "associations":
		return slurmjson.Schema(assocJSON(), ver)
	case "qos":
		return slurmjson.Schema(qosJSON(), ver)
	case "wckeys":
		return slurmjson.Schema(wckeyJSON(), ver)
	case "tres":
		return slurmjson.Schema(tresJSON(), ver)
	}
	return slurmjson.Schema(clusterJSON(), ver)
}
