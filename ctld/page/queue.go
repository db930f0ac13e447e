package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// part is a partition as the page shows it.
type part struct {
	Name, State, Nodes, GPUs string
	CPUs                     int64
	MaxS                     int64
	Default                  bool
}

// resv is a reservation.
type resv struct {
	*model.Reservation
	Who, On, What string
	Active        bool
}

// queueView is the view.
type queueView struct {
	Jobs       []*jobLine
	More       string // after which job the next ones come
	Parts      []part
	Resvs      []resv
	User, Part string
	State      string
	Name, Sort string
	Own        bool   // the reader's only
	None       string // why the list is empty
	Sorts      []pair
	Charts     []*chart
	Hidden     string // why something is missing
}

// queue lists unfinished jobs of everybody, partitions and reservations.
func queue(q *request) (any, error) {
	set := q.r.URL.Query()
	v := &queueView{User: strings.TrimSpace(set.Get("user")), Part: set.Get("partition"), State: set.Get("state")}
	rq := &proto.JobsRequest{Default: true, Positions: true}
	v.Name, v.Own = strings.TrimSpace(set.Get("name")), set.Get("mine") != ""
	v.Sort, v.Sorts = set.Get("sort"), queueSorts()
	if v.User != "" {
		u, err := q.p.o.Cluster.User(q.ctx, v.User)
		if err != nil {
			v.None = "There is no user " + v.User + " on this cluster."
			u = &proto.Caller{UID: model.NoID}
		}
		rq.Filter.Users = []uint32{u.UID}
	}
	if v.Own {
		v.User, rq.Filter.Users = "", []uint32{q.who.UID}
	}
	if err := q.parts(v); err != nil {
		v.Hidden = env.Text(err)
	} else if v.Part != "" && !slices.ContainsFunc(v.Parts, func(p part) bool { return p.Name == v.Part }) {
		v.None = "There is no partition " + v.Part + " that you may see."
	}
	if v.Part != "" {
		rq.Filter.Partitions = []string{v.Part}
	}
	for _, s := range model.JobStates() {
		if v.State == "waiting" && s == model.Pending || v.State == "running" && s.HasResources() {
			rq.Filter.States = append(rq.Filter.States, s)
		}
	}
	after, _ := strconv.ParseInt(set.Get("after"), 10, 64) // 0 is the beginning
	list, rules, more, err := q.jobs(rq, maxRows, func(j *model.Job) bool {
		return int64(j.ID) > after &&
			(v.Name == "" || strings.Contains(strings.ToLower(j.Spec.Name), strings.ToLower(v.Name)))
	})
	if err != nil {
		return nil, err
	}
	if more {
		next := set
		next.Set("after", fmt.Sprint(list[len(list)-1].ID))
		v.More = next.Encode()
	}
	for _, j := range list {
		v.Jobs = append(v.Jobs, q.line(j, rules))
	}
	v.none()
	slices.SortStableFunc(v.Jobs, func(a, b *jobLine) int {
		switch v.Sort {
		case "priority":
			return cmp.Compare(b.Priority, a.Priority)
		case "gpus":
			return cmp.Compare(b.GPUs, a.GPUs)
		case "user":
			return cmp.Or(strings.Compare(a.Spec.User, b.Spec.User), cmp.Compare(a.ID, b.ID))
		case "name":
			return cmp.Or(strings.Compare(a.Spec.Name, b.Spec.Name), cmp.Compare(a.ID, b.ID))
		case "number":
			return cmp.Compare(a.ID, b.ID)
		}
		run := func(l *jobLine) int { return map[bool]int{true: 0, false: 1}[l.Run != nil] }
		return cmp.Or(cmp.Compare(run(a), run(b)), cmp.Compare(startKey(a.Start), startKey(b.Start)),
			cmp.Compare(a.ID, b.ID))
	})
	v.Charts = q.lastDay("running", "pending", "cpus", "gpus", "gpu_util")
	if err := q.resvs(v); err != nil {
		v.Hidden = env.Text(err)
	}
	return v, nil
}

func queueSorts() []pair {
	return []pair{{"", "by start"}, {"priority", "by priority"}, {"gpus", "by GPUs"}, {"user", "by user"},
		{"name", "by name"}, {"number", "by number"}}
}

// none says of what there is nothing.
func (v *queueView) none() {
	if v.None != "" || len(v.Jobs) > 0 {
		return
	}
	v.None = "No job"
	switch {
	case v.Own:
		v.None += " of yours"
	case v.User != "":
		v.None += " of user " + v.User
	}
	if v.Name != "" {
		v.None += " with " + v.Name + " in its name"
	}
	v.None += map[string]string{"waiting": " waits", "running": " runs"}[v.State]
	if v.State != "waiting" && v.State != "running" {
		v.None += " waits or runs"
	}
	if v.Part != "" {
		v.None += " in partition " + v.Part
	}
	v.None += "."
}

func (q *request) parts(v *queueView) error {
	var reply proto.PartitionsReply
	if err := q.ask(proto.KindPartitions, &proto.Empty{}, &reply); err != nil {
		return err
	}
	for i, p := range reply.Partitions {
		if reply.Hides(i) {
			continue
		}
		x := part{Name: p.Name, State: p.State.String(), Nodes: hostlist.Compress(p.Nodes), MaxS: p.MaxTimeS,
			Default: p.Default}
		if i < len(reply.TotalCPUs) {
			x.CPUs = reply.TotalCPUs[i]
		}
		if i < len(reply.Gres) {
			for _, g := range reply.Gres[i].Gres {
				if g.Name == model.GPUName {
					x.GPUs = strings.TrimSpace(x.GPUs + " " + count(g.Count) + " " + g.Type)
				}
			}
		}
		v.Parts = append(v.Parts, x)
	}
	return nil
}

func (q *request) resvs(v *queueView) error {
	var reply proto.ReservationsReply
	if err := q.ask(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		return err
	}
	for i, r := range reply.List {
		x := resv{Reservation: r, On: hostlist.CompressSorted(r.Nodes), Active: r.Start <= q.now,
			Who: strings.Join(append(append(slices.Clone(r.Users), r.Accounts...), r.Groups...), ", ")}
		if i < len(reply.Sizes) && len(reply.Sizes[i].Gres) > 0 {
			for _, g := range reply.Sizes[i].Gres {
				x.What = strings.TrimSpace(x.What + " " + count(g.Count) + " " + strings.TrimPrefix(g.TRES, "gres/"))
			}
		} else if i < len(reply.CPUs) {
			x.What = plural(reply.CPUs[i], "CPU", "CPUs")
		}
		v.Resvs = append(v.Resvs, x)
	}
	return nil
}
