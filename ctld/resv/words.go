package resv

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// words.go reads gcontrol's settings: each sets a field of the draft, and build checks the result.

// draft is a reservation that is being made.
type draft struct {
	Facts
	r         *model.Reservation
	fresh     bool
	start     bool // a start was given
	end       model.Time
	durationS int64
	timed     bool // a duration was given
	skip      bool

	sized   bool // nodes, or amounts, were given
	nodes   string
	count   int
	cores   []int            // in all, or for each named node
	cpus    int64            // in all
	perNode bool             // units and memory are of each node
	mem     int64            // MiB in all; 0: what belongs to the CPUs
	units   map[string]int64 // of generic resources, gres/NAME or gres/NAME:TYPE, in all
	percent map[string]int64 // of cpu or gres/NAME, of what the nodes that may be chosen have
	follows bool             // PART_NODES was given
}

func (d *draft) build(set []model.KV) error {
	for _, kv := range set {
		if err := d.word(kv); err != nil {
			return err
		}
	}
	r := d.r
	if d.skip {
		if d.fresh || len(r.Later) == 0 {
			return refuse(proto.CodeReservation, "Skip goes to the next time of a reservation that repeats")
		}
		d.durationS = int64(r.End-r.Start) / 1000
		r.Start, d.start = r.Later[0], true
	}
	switch {
	case d.fresh && !d.start:
		return refuse(proto.CodeTimeValue, "a start time must be given (StartTime=)")
	case d.end != 0 && d.timed && r.Start.Add(d.durationS) != d.end:
		return refuse(proto.CodeTimeValue, "StartTime and Duration do not give EndTime")
	case d.end != 0:
		r.End = d.end
	case d.timed || d.start && !d.fresh:
		r.End = r.Start.Add(d.durationS)
	case d.fresh:
		return refuse(proto.CodeTimeValue, "an end time or duration must be given (EndTime=, Duration=)")
	}
	if err := d.times(); err != nil {
		return err
	}
	if len(r.Users)+len(r.Accounts)+len(r.Groups) == 0 {
		return refuse(proto.CodeResvUsers, "give Users=, Groups= or Accounts=")
	}
	if len(r.Users) > 0 && len(r.Groups) > 0 {
		return refuse(proto.CodeResvUsers, "Users= and Groups= exclude each other")
	}
	if r.DelayS > 0 && r.Flags&model.ResvMagnetic != 0 {
		return refuse(proto.CodeReservation, "MaxStartDelay and Flags=MAGNETIC exclude each other: a job that a "+
			"reservation attracts never makes others leave; let its jobs ask for it with --reservation")
	}
	if r.Partition != "" && d.View.Partition(r.Partition) == nil {
		return refuse(proto.CodeInvalidPartition, "%s", r.Partition)
	}
	return d.pick()
}

// times checks a reservation's times and computes its next occurrences.
func (d *draft) times() error {
	r := d.r
	repeats := r.Flags & model.ResvRepeats
	switch {
	case r.Start >= r.End:
		return refuse(proto.CodeTimeValue, "the reservation would end before it starts")
	case r.End <= d.Now && repeats == 0:
		return refuse(proto.CodeTimeValue, "the reservation would end in the past")
	case repeats&(repeats-1) != 0:
		return refuse(proto.CodeReservation, "a reservation takes only one of HOURLY, DAILY, WEEKDAY, WEEKEND and WEEKLY")
	case r.PeriodS() > 0 && int64(r.End-r.Start) > r.PeriodS()*1000:
		return refuse(proto.CodeTimeValue, "the reservation is longer than the period at which it repeats")
	case r.Flags&model.ResvFloat != 0 && repeats != 0:
		return refuse(proto.CodeReservation, "TIME_FLOAT reservations don't repeat")
	case r.Flags&model.ResvFloat != 0 && r.FloatS == 0 && !d.fresh, r.Flags&model.ResvFloat == 0 && r.FloatS > 0:
		return refuse(proto.CodeReservation, "TIME_FLOAT can't be added to a reservation or removed from it")
	case r.Flags&model.ResvFloat != 0 && d.start:
		r.FloatS = int64(r.Start-d.Now+999) / 1000
		if r.FloatS <= 0 {
			return refuse(proto.CodeTimeValue, "TIME_FLOAT needs a StartTime in the future, such as now+10minutes")
		}
	}
	switch {
	case repeats == 0:
		r.First, r.Later = 0, nil
	case d.start || r.First == 0:
		r.First = r.Start
	}
	r.Later = laterOf(r, d.Zone)
	return nil
}

// word takes one key=value.
func (d *draft) word(kv model.KV) error {
	r := d.r
	key, value := strings.ToLower(ask.ResvKey(kv.Key)), kv.Value
	if len(value) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "%s is %d bytes long, the limit is %d", kv.Key, len(value), proto.MaxFieldBytes)
	}
	how := byte('=')
	if n := len(key); n > 1 && (key[n-1] == '+' || key[n-1] == '-') {
		key, how = key[:n-1], key[n-1]
	}
	moment := func() (model.Time, error) {
		t, ok := ask.ParseMoment(value)
		if !ok || t <= 0 {
			return 0, refuse(proto.CodeTimeValue, "%s=%s", kv.Key, value)
		}
		return t - t%1000, nil
	}
	var err error
	switch key {
	case "starttime":
		r.Start, err = moment()
		d.start = true
		if !d.fresh && d.r.Begun && r.Flags&model.ResvRepeats == 0 {
			err = refuse(proto.CodeTimeValue, "the reservation has begun; its StartTime can no longer be changed")
		}
	case "endtime":
		d.end, err = moment()
	case "duration":
		err = d.lasts(kv, how)
	case "skip":
		d.skip = true
	case "nodes", "nodelist":
		d.nodes, d.sized = value, true
		if how != '=' {
			d.nodes, err = d.nodesAnd(value, how)
			return err
		}
		if value == "" && !d.fresh { // others are chosen, as many as there were
			d.count = len(r.Nodes)
			r.Flags &^= model.ResvSpecNodes
		}
	case "nodecnt", "nodecount":
		d.sized = true
		d.count, err = nodeCount(value)
	case "corecnt", "corecount":
		d.sized = true
		err = d.coreList(value)
	case "tres":
		d.sized = true
		err = d.tres(value)
	case "trespernode":
		d.sized, d.perNode = true, true
		err = d.tres(value)
	case "licenses":
		d.sized = true
		err = d.licenses(value)
	case "partitionname":
		r.Partition = value
		d.sized = d.sized || d.fresh
	case "features":
		r.Features = value
		if f, perr := model.ParseFeatures(value); perr != nil || f != nil && len(f.Same)+len(f.Counts) > 0 {
			return refuse(proto.CodeFeature,
				"Features=%s: join features with & and |, in parentheses where needed; counts and brackets are for jobs", value)
		}
	case "users":
		err = d.users(value, how)
	case "accounts":
		err = d.accounts(value, how)
	case "groups":
		r.Groups, err = changed(r.Groups, value, how)
		if err == nil {
			r.GIDs, err = d.groupIDs(r.Groups)
		}
	case "flags":
		err = d.flags(value, how)
	case "maxstartdelay":
		if r.DelayS = 0; value != "" {
			if r.DelayS, err = walltime.ParseDuration(value); err != nil {
				return refuse(proto.CodeTimeValue, "%s=%s: %v", kv.Key, value, err)
			}
			r.DelayS = (r.DelayS + 59) / 60 * 60
		}
	case "burstbuffer", "watts":
		err = refuse(proto.CodeReservation, "%s=%s: there are no burst buffers, and no power is managed", kv.Key, value)
	default:
		err = refuse(proto.CodeReservation, "%s is not a key of reservations; the keys are StartTime EndTime Duration "+
			"Nodes NodeCnt CoreCnt TRES TRESPerNode Licenses PartitionName Features Users Groups Accounts Flags "+
			"MaxStartDelay Skip", kv.Key)
	}
	return err
}

func durationOf(key, value string) (int64, error) {
	s, unlimited, err := walltime.ParseLimit(value)
	if err != nil {
		return 0, refuse(proto.CodeTimeValue, "%s=%s: %v", key, value, err)
	}
	if unlimited {
		s = yearS
	}
	return s, nil
}

// nodeCount reads NodeCnt: a number, or several that are added up, which were blocks of nodes on machines that had
// such.
func nodeCount(value string) (int, error) {
	all := int64(0)
	for item := range strings.SplitSeq(value, ",") {
		n, err := walltime.ParseCount(item)
		if err != nil || n < 1 || n > maxNodes || all+n > maxNodes {
			return 0, refuse(proto.CodeNodeCount, "NodeCnt=%s: write the number of nodes", value)
		}
		all += n
	}
	return int(all), nil
}

// coreList reads CoreCnt: a number, or one for each named node.
func (d *draft) coreList(value string) error {
	d.cores = nil
	for item := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(item))
		if err != nil || n < 1 || n > 1<<24 {
			return refuse(proto.CodeReservation, "CoreCnt=%s: write the number of cores, or one for each node of Nodes=", value)
		}
		d.cores = append(d.cores, n)
	}
	return nil
}

// tres reads TRES=cpu=8,node=2,gres/gpu=4,license/x=1; gres/gpu:4 is read as gres/gpu=4 too.
func (d *draft) tres(value string) error {
	bad := refuse(proto.CodeReservation,
		"TRES=%s: write cpu=N, node=N, mem=SIZE, gres/gpu=N, gres/gpu:TYPE=N or license/NAME=N, with commas between", value)
	last, licenses := "", []model.LicenseCount(nil)
	for item := range ask.Amounts(value) {
		again := last
		last = item.TRES
		_, _, gres := model.TRESGres(item.TRES)
		if percent, is, err := item.Percent(); is {
			if err != nil || percent < 100 || percent%100 != 0 || d.perNode || item.TRES != "cpu" && !gres {
				return refuse(proto.CodeReservation, "TRES=%s: a percentage, 1%% to 100%%, is of cpu or gres/NAME of all nodes "+
					"together, as in TRES=gres/gpu=15%%; otherwise write a number", value)
			}
			put(&d.percent, item.TRES, percent/100)
			continue
		}
		if again == "cpu" && (item.TRES == "" || item.TRES == "cpu") { // cpu=2,2,1
			return refuse(proto.CodeReservation, "TRES=%s: give cores of each node with CoreCnt=", value)
		}
		n, err := item.Count()
		if err != nil || n < 1 || item.TRES != "mem" && n > model.MaxFeatureCount {
			return bad
		}
		license, licensed := model.TRESLicense(item.TRES)
		switch {
		case item.TRES == "mem":
			d.mem = n
		case item.TRES == "cpu":
			d.cpus = n
		case item.TRES == "node" && !d.perNode:
			d.count = int(n)
		case gres:
			put(&d.units, item.TRES, n)
		case licensed:
			licenses = append(licenses, model.LicenseCount{Name: license, Count: n})
		default:
			return bad
		}
	}
	return d.addLicenses(value, licenses)
}

func put(m *map[string]int64, tres string, n int64) {
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[tres] = n
}

// licenses reads Licenses=: all of them, in place of those that the reservation has.
func (d *draft) licenses(value string) error {
	list, either, err := ask.ParseLicenses(value)
	if err != nil {
		return refuse(proto.CodeReservation, "%v", err)
	}
	if either {
		return refuse(proto.CodeReservation, "Licenses=%s: a reservation takes all of them; write NAME:COUNT with commas "+
			"between", value)
	}
	d.r.Licenses = nil
	return d.addLicenses(value, list)
}

// addLicenses adds licenses that the cluster has, or changes their numbers.
func (d *draft) addLicenses(value string, list []model.LicenseCount) error {
	cfg := d.View.Config()
	for i, l := range list {
		same := func(o model.LicenseCount) bool { return o.Name == l.Name }
		if k := slices.IndexFunc(cfg.Licenses, same); k < 0 || cfg.Licenses[k].Count < l.Count {
			return refuse(proto.CodeReservation, "Invalid license specification: %s:%d; %s", l.Name, l.Count,
				ask.LicensesThere(cfg))
		}
		if slices.ContainsFunc(list[:i], same) {
			return refuse(proto.CodeReservation, "TRES=%s: %s is named twice", value, model.LicenseTRES(l.Name))
		}
		d.r.Licenses = append(slices.DeleteFunc(slices.Clone(d.r.Licenses), same), l)
	}
	return nil
}

// changed gives a list of names after Key=, Key+= or Key-=. If all begin with -, they are excluded.
func changed(old []string, value string, how byte) ([]string, error) {
	out := slices.Clone(old)
	if how == '=' {
		out = nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if name == "" || name == "-" {
			continue
		}
		i := slices.Index(out, name)
		switch {
		case how == '-' && i >= 0:
			out = slices.Delete(out, i, i+1)
		case how == '-' && len(out) > 0 && out[0][0] != '-':
		case how == '-' && !slices.Contains(out, "-"+name):
			out = append(out, "-"+name)
		case how != '-' && i < 0:
			out = append(out, name)
		}
	}
	for _, name := range out {
		if (name[0] == '-') != (out[0][0] == '-') {
			return nil, refuse(proto.CodeReservation,
				"'%s': name who may use the reservation or, with - before each, who may not", value)
		}
	}
	return out, nil
}

// groupIDs finds the numbers of groups.
func (f *Facts) groupIDs(names []string) (out []uint32, err error) {
	for _, name := range names {
		if name[0] == '-' {
			return nil, refuse(proto.CodeReservation, "Groups=%s: groups can't be denied; name users", name)
		}
		gid, err := f.Group(name)
		if err != nil {
			return nil, refuse(proto.CodeResvUsers, "Groups=%s: %v", name, err)
		}
		out = append(out, gid)
	}
	return out, nil
}

// purgeS is how long a PURGE_COMP reservation may be idle by default, seconds.
const purgeS = 300

// otherFlags are Slurm's that mean nothing here, with what to do instead.
var otherFlags = map[string]string{
	"USER_DELETE": "operators delete reservations; Flags=PURGE_COMP removes one that nobody uses",
	"FORCE_START": "a reservation begins at its StartTime; one that repeats can be given a StartTime to come",
	"SKIP":        "Skip is a word of its own: gcontrol update reservation NAME Skip",
}

// flags reads Flags=; PURGE_COMP may have a time after =.
func (d *draft) flags(value string, how byte) error {
	r := d.r
	if how == '=' {
		r.Flags &= model.ResvSpecNodes | model.ResvAllNodes | model.ResvFloat
	}
	for name := range strings.SplitSeq(strings.ToUpper(value), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		off := how == '-' || strings.HasPrefix(name, "-")
		name, span, timed := strings.Cut(strings.TrimLeft(name, "+-"), "=")
		switch name {
		case "LICENSE_ONLY":
			name = "ANY_NODES"
		case "NO_HOLD_JOBS_AFTER_END":
			name = "NO_HOLD_JOBS_AFTER"
		case "STATIC":
			name = "STATIC_ALLOC"
		case "FIRST_CORES":
			return refuse(proto.CodeReservation,
				"Flags=FIRST_CORES: which cores are kept free is decided when jobs start; CoreCnt= says how many")
		}
		if why := otherFlags[name]; why != "" {
			return refuse(proto.CodeReservation, "Flags=%s: %s", name, why)
		}
		f, ok := model.ParseResvFlag(name)
		if f&(model.ResvSpecNodes|model.ResvAllNodes) != 0 && r.Flags&f == 0 {
			return refuse(proto.CodeReservation, "Flags=%s is set by Nodes= itself; leave it out", name)
		}
		if f == model.ResvPartNodes {
			d.follows = !off && r.Flags&f == 0
		}
		if !ok || timed && f != model.ResvPurge {
			return refuse(proto.CodeReservation, "Flags=%s is not supported here; there are MAINT, FLEX, IGNORE_JOBS, HOURLY, "+
				"DAILY, WEEKDAY, WEEKEND, WEEKLY, ANY_NODES, PART_NODES, OVERLAP, PURGE_COMP, REPLACE, REPLACE_DOWN, "+
				"STATIC_ALLOC, TIME_FLOAT, MAGNETIC and NO_HOLD_JOBS_AFTER", name)
		}
		if off {
			r.Flags &^= f
		} else {
			r.Flags |= f
		}
		if f != model.ResvPurge {
			continue
		}
		r.PurgeS = 0
		if !off {
			r.PurgeS = purgeS
			if timed {
				s, err := durationOf("Flags=PURGE_COMP", span)
				if err != nil {
					return err
				}
				r.PurgeS = max(1, s)
			}
		}
	}
	return nil
}
