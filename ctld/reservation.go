package ctld

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// Reservations: gcontrol's words become a model.Reservation of whole nodes, chosen here and then fixed.

// yearS is how long a reservation without an end is, seconds; as in Slurm.
const yearS = 365 * 86400

func (c *Controller) reservations() *proto.ReservationsReply {
	v := c.machine.View()
	out := &proto.ReservationsReply{Now: c.now()}
	v.Reservations(func(r *model.Reservation) bool {
		cpus := int64(0)
		for _, name := range r.Nodes {
			if d := v.NodeDef(name); d != nil {
				cpus += int64(d.CPUs)
			}
		}
		out.List, out.CPUs = append(out.List, r), append(out.CPUs, cpus)
		return true
	})
	return out
}

// reserve creates, changes and removes reservations, for operators.
func (c *Controller) reserve(ctx context.Context, who *proto.Caller, rq *proto.ReserveRequest) (*proto.ReserveReply, error) {
	if !c.operator(who) {
		return nil, refuse(proto.CodeAccess, "reservations are for operators")
	}
	v, now := c.machine.View(), c.now()
	cmd := &state.Reserve{}
	switch rq.Action {
	case proto.DeleteReservation:
		cmd.Op, cmd.Resv = state.DropResv, &model.Reservation{Name: rq.Name}
	case proto.UpdateReservation:
		old := v.Reservation(rq.Name)
		if old == nil {
			return nil, refuse(proto.CodeReservation, "%s", rq.Name)
		}
		r := *old
		cmd.Op, cmd.Resv = state.UpdateResv, &r
	case proto.CreateReservation:
		cmd.Op, cmd.Resv = state.CreateResv, &model.Reservation{Name: rq.Name}
	default:
		return nil, refuse(proto.CodeBadRequest, "an unknown change of reservations (%d)", rq.Action)
	}
	if cmd.Op != state.DropResv {
		d := &resvDraft{v: v, now: now, r: cmd.Resv, durationS: int64(cmd.Resv.End-cmd.Resv.Start) / 1000, fresh: cmd.Op == state.CreateResv}
		if err := d.build(rq.Set); err != nil {
			return nil, err
		}
	}
	if cmd.Resv.Name == "" {
		cmd.Resv.Name = freeName(v, cmd.Resv)
	}
	res, err := c.propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	switch res.Refusal {
	case state.OK:
		return &proto.ReserveReply{Name: cmd.Resv.Name}, nil
	case state.InUse:
		if v.Reservation(cmd.Resv.Name) == nil {
			return nil, refuse(proto.CodeBusy, "there are %d reservations already", state.MaxReservations)
		}
		return nil, refuse(proto.CodeResvName, "%s", cmd.Resv.Name)
	case state.NoSuchReservation:
		return nil, refuse(proto.CodeReservation, "%s", cmd.Resv.Name)
	case state.JobsActive:
		return nil, refuse(proto.CodeResvBusy, "jobs run in %s; cancel them first", cmd.Resv.Name)
	case state.Overlapping:
		other := ""
		if o := v.Overlaps(cmd.Resv); o != nil {
			other = o.Name
		}
		return nil, refuse(proto.CodeResvOverlap, "%s; Flags=OVERLAP or MAINT lets both be", other)
	}
	return nil, refuse(proto.CodeInvalidNode, "the configuration has just changed; try again")
}

// freeName makes a name as Slurm does: the first user or account and a number.
func freeName(v *state.View, r *model.Reservation) string {
	base := append(append([]string(nil), r.Users...), append(r.Accounts, "resv")...)[0]
	for i := 1; ; i++ {
		if name := fmt.Sprintf("%s_%d", base, i); v.Reservation(name) == nil {
			return name
		}
	}
}

// resvDraft is a reservation being made of words.
type resvDraft struct {
	v         *state.View
	now       model.Time
	r         *model.Reservation
	fresh     bool
	start     bool // a start was given
	end       model.Time
	durationS int64
	timed     bool // a duration was given
	nodes     string
	count     int
}

func (d *resvDraft) build(set []model.KV) error {
	for _, kv := range set {
		if err := d.word(kv); err != nil {
			return err
		}
	}
	r := d.r
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
	switch {
	case r.Start >= r.End:
		return refuse(proto.CodeTimeValue, "the reservation would end before it starts")
	case r.End <= d.now:
		return refuse(proto.CodeTimeValue, "the reservation would be over already")
	case r.PeriodS() > 0 && int64(r.End-r.Start) > r.PeriodS()*1000:
		return refuse(proto.CodeTimeValue, "the reservation is longer than the time after which it comes again")
	case r.Flags&model.ResvDaily != 0 && r.Flags&model.ResvWeekly != 0:
		return refuse(proto.CodeReservation, "a reservation is DAILY or WEEKLY, not both")
	case len(r.Users)+len(r.Accounts) == 0:
		return refuse(proto.CodeResvUsers, "give Users= or Accounts=")
	}
	if r.Partition != "" && d.v.Partition(r.Partition) == nil {
		return refuse(proto.CodeInvalidPartition, "%s", r.Partition)
	}
	return d.pick()
}

// word takes one key=value.
func (d *resvDraft) word(kv model.KV) error {
	r := d.r
	key, value := strings.ToLower(kv.Key), kv.Value
	if len(value) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "%s is %d bytes long, the limit is %d", kv.Key, len(value), proto.MaxFieldBytes)
	}
	how := byte('=')
	if n := len(key); n > 1 && (key[n-1] == '+' || key[n-1] == '-') {
		key, how = key[:n-1], key[n-1]
	}
	moment := func() (model.Time, error) {
		ms, err := strconv.ParseInt(strings.TrimPrefix(value, "@"), 10, 64)
		if err != nil || ms <= 0 {
			return 0, refuse(proto.CodeTimeValue, "%s=%s", kv.Key, value)
		}
		return model.Time(ms - ms%1000), nil
	}
	var err error
	switch key {
	case "starttime":
		r.Start, err = moment()
		d.start = true
	case "endtime":
		d.end, err = moment()
	case "duration":
		s, unlimited, perr := walltime.ParseLimit(value)
		if perr != nil {
			return refuse(proto.CodeTimeValue, "Duration=%s: %v", value, perr)
		}
		if unlimited {
			s = yearS
		}
		d.durationS, d.timed = s, true
	case "nodes", "nodelist":
		d.nodes = value
		if how != '=' {
			return refuse(proto.CodeBadRequest, "give all of the nodes with Nodes=")
		}
	case "nodecnt", "nodecount":
		n, perr := strconv.Atoi(value)
		if perr != nil || n < 1 {
			return refuse(proto.CodeNodeCount, "NodeCnt=%s: write one number", value)
		}
		d.count = n
	case "partitionname", "partition":
		r.Partition = value
	case "features", "feature":
		r.Features = value
		if strings.ContainsAny(value, "|*[]!()") {
			return refuse(proto.CodeFeature, "Features=%s: here features are joined with & only", value)
		}
	case "users", "user":
		r.Users, err = changed(r.Users, value, how)
	case "accounts", "account":
		r.Accounts, err = changed(r.Accounts, value, how)
	case "flags":
		err = d.flags(value, how)
	case "corecnt", "corecount", "tres", "trespernode":
		err = refuse(proto.CodeReservation, "%s=%s: reservations are of whole nodes; give Nodes= or NodeCnt=, and with Accounts= or Users= limits of a QOS for a part of the GPUs", kv.Key, value)
	case "groups", "group":
		err = refuse(proto.CodeReservation, "Groups=%s: name users or accounts instead", value)
	default:
		err = refuse(proto.CodeReservation, "%s is not a key of reservations here; there are StartTime EndTime Duration Nodes NodeCnt PartitionName Features Users Accounts Flags", kv.Key)
	}
	return err
}

// changed gives a list of names after Key=, Key+= or Key-=.
func changed(old []string, value string, how byte) ([]string, error) {
	out := old
	if how == '=' {
		out = nil
	}
	out = slices.Clone(out)
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		minus := how == '-'
		if how == '=' && strings.HasPrefix(name, "-") {
			return nil, refuse(proto.CodeReservation, "-%s: name who may use the reservation, not who may not", strings.TrimPrefix(name, "-"))
		}
		switch i := slices.Index(out, name); {
		case name == "":
		case minus && i >= 0:
			out = slices.Delete(out, i, i+1)
		case !minus && i < 0:
			out = append(out, name)
		}
	}
	return out, nil
}

func (d *resvDraft) flags(value string, how byte) error {
	if how == '=' {
		d.r.Flags &= model.ResvSpecNodes | model.ResvAllNodes
	}
	for name := range strings.SplitSeq(strings.ToUpper(value), ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		off := how == '-' || strings.HasPrefix(name, "-")
		name = strings.TrimLeft(name, "+-")
		f, ok := model.ParseResvFlag(name)
		if !ok {
			return refuse(proto.CodeReservation, "Flags=%s is not supported here; there are MAINT, FLEX, IGNORE_JOBS, DAILY, WEEKLY, SPEC_NODES, OVERLAP and NO_HOLD_JOBS_AFTER", name)
		}
		if off {
			d.r.Flags &^= f
		} else {
			d.r.Flags |= f
		}
	}
	return nil
}

// pick fixes the nodes: those that are named, or as many as were asked for that are free in time.
func (d *resvDraft) pick() error {
	r, v := d.r, d.v
	if !d.fresh && d.nodes == "" && d.count == 0 {
		return nil
	}
	var pool []string
	for _, def := range v.Config().Nodes {
		p := v.Partition(r.Partition)
		if (p == nil || slices.Contains(p.Nodes, def.Name)) && hasAll(def.Features, r.Features) {
			pool = append(pool, def.Name)
		}
	}
	switch {
	case strings.EqualFold(d.nodes, "ALL"):
		r.Nodes = pool
		r.Flags |= model.ResvAllNodes
	case d.nodes != "":
		names, err := hostlist.Expand(d.nodes)
		if err != nil {
			return refuse(proto.CodeInvalidNode, "Nodes=%s: %v", d.nodes, err)
		}
		for _, n := range names {
			if v.NodeDef(n) == nil {
				return refuse(proto.CodeInvalidNode, "%s", n)
			}
			if !slices.Contains(pool, n) {
				return refuse(proto.CodeNodeConfig, "node %s is not in partition %s, or lacks the features %s", n, r.Partition, r.Features)
			}
		}
		r.Nodes = names
		r.Flags |= model.ResvSpecNodes
	case d.count > 0:
		r.Nodes = nil
		for _, n := range pool {
			if len(r.Nodes) < d.count && v.Node(n).Usable() && d.free(n) == 0 {
				one := *r
				one.Nodes = []string{n}
				if !d.taken(&one) {
					r.Nodes = append(r.Nodes, n)
				}
			}
		}
		if len(r.Nodes) < d.count {
			return refuse(proto.CodeNodesBusy, "%d of %d nodes are free from then on", len(r.Nodes), d.count)
		}
	default:
		return refuse(proto.CodeReservation, "Nodes or NodeCnt must be specified")
	}
	if len(r.Nodes) == 0 {
		return refuse(proto.CodeNodeConfig, "no node fits the request")
	}
	slices.Sort(r.Nodes)
	r.Nodes = slices.Compact(r.Nodes)
	if r.Flags&model.ResvIgnore == 0 {
		for _, n := range r.Nodes {
			if id := d.free(n); id != 0 {
				return refuse(proto.CodeNodesBusy, "job %d on %s may run longer than until it starts; Flags=IGNORE_JOBS makes it all the same", id, n)
			}
		}
	}
	return nil
}

// taken reports whether any other reservation, MAINT or not, wants the same nodes at the same time.
func (d *resvDraft) taken(r *model.Reservation) (taken bool) {
	d.v.Reservations(func(o *model.Reservation) bool {
		taken = o.Name != r.Name && r.Meets(o)
		return !taken
	})
	return taken
}

// free gives a job that may still be on a node when the reservation begins and does not belong to it, or 0.
func (d *resvDraft) free(node string) model.JobID {
	n := d.v.Node(node)
	if n == nil {
		return 0
	}
	for _, id := range n.Jobs {
		if j := d.v.Job(id); j != nil && j.Run != nil && j.Spec.Reservation != d.r.Name {
			if end := j.Run.Deadline(); end == 0 || end > d.r.Start {
				return id
			}
		}
	}
	return 0
}

func hasAll(have []string, want string) bool {
	for f := range strings.SplitSeq(want, "&") {
		if f = strings.TrimSpace(f); f != "" && !slices.Contains(have, f) {
			return false
		}
	}
	return true
}

// mayUse tells why a job can't ask for a reservation.
func mayUse(v *state.View, sp *model.Spec) error {
	if sp.Reservation == "" {
		return nil
	}
	r := v.Reservation(sp.Reservation)
	switch {
	case r == nil:
		return refuse(proto.CodeReservation, "%s; gcontrol show reservation lists them", sp.Reservation)
	case !r.Admits(sp.User, sp.Account):
		return refuse(proto.CodeResvAccess, "%s is for users %s, accounts %s", r.Name, orAny(r.Users), orAny(r.Accounts))
	}
	return nil
}

func orAny(names []string) string {
	if len(names) == 0 {
		return "any"
	}
	return strings.Join(names, ",")
}
