package rest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gbatch/internal/clustertext"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/slurmjson"
)

// nodes.go reads nodes, partitions, reservations, licenses, shares and the leader's statistics.

var (
	nodeFields        = jobtext.NodeMembers()
	partitionFields   = jobtext.PartitionJSON()
	reservationFields = jobtext.ReservationJSON()
	licenseFields     = clustertext.LicenseJSON()
	shareFields       = clustertext.ShareJSON()
	pingFields        = clustertext.PingJSON()
	statisticFields   = clustertext.StatisticsJSON()
)

// pingFor is how long the answer to a ping is everybody's: the controllers ask each other less often.
const pingFor = 100 * time.Millisecond

func getPing(q *request) error {
	moment := time.Now().UnixMilli() / pingFor.Milliseconds()
	return q.sharedAt("ping", moment, func(own *request, j *slurmjson.Writer) error {
		var r proto.PingReply
		if err := own.ask(proto.KindPing, &proto.Empty{}, &r); err != nil {
			return err
		}
		j.Open("pings", '[')
		for i := range r.Controllers {
			slurmjson.Write(j, "", pingFields, &r.Controllers[i])
		}
		j.Close(']')
		return nil
	})
}

func getDiag(q *request) error {
	var r proto.DiagReply
	if err := q.ask(proto.KindDiag, &proto.Empty{}, &r); err != nil {
		return err
	}
	slurmjson.Write(q.j, "statistics", statisticFields, &r)
	return nil
}

// nodes writes nodes, all or the named ones.
func (q *request) nodes(j *slurmjson.Writer, names []string, pick func(*proto.NodeInfo) bool) error {
	cluster := q.facts.Config().Cluster
	j.Open("nodes", '[')
	err := q.stream(proto.KindNodes, &proto.NodesRequest{Names: names}, func(part []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for i, n := range chunk.Nodes {
			q.wrote(i)
			if pick == nil || pick(n) {
				slurmjson.Write(j, "", nodeFields, &jobtext.NodeOf{NodeInfo: n, Cluster: cluster})
			}
		}
		j.Flush(false)
		return q.ctx.Err()
	})
	j.Close(']')
	q.updated(j)
	return err
}

func listNodes(q *request) error {
	if err := q.since(); err != nil {
		return err
	}
	return q.shared("nodes", func(own *request, j *slurmjson.Writer) error { return own.nodes(j, nil, nil) })
}

// notQueried is the sentence by which clients know that there is no such thing; it is a warning beside an empty list.
func notQueried(what, name string) string { return fmt.Sprintf("Failure to query %s %s", what, name) }

func getNode(q *request) error {
	if err := q.since(); err != nil {
		return err
	}
	if q.facts.Node(q.name) == nil {
		var said *rpc.Error // who may not see nodes hears the same of those that there are
		err := q.stream(proto.KindNodes, &proto.NodesRequest{Names: []string{q.name}}, func([]byte) error { return nil })
		if errors.As(err, &said) && said.Code == proto.CodeAccess {
			return err
		}
		q.j.List("nodes", nil)
		q.updated(q.j)
		q.faults = append(q.faults, asFault(&fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode),
			Detail: notQueried("node", q.name), Status: statusFound}, q.op.id(q.ver)))
		q.warn(notQueried("node", q.name))
		return nil
	}
	return q.nodes(q.j, []string{q.name}, func(n *proto.NodeInfo) bool { return n.Node.Def.Name == q.name })
}

// statusFound is the status of an answer whose error says that there is nothing by that name: clients look at the
// error.
const statusFound = 200

// partitions writes partitions, all or the named one.
func (q *request) partitions(name string) error {
	if err := q.since(); err != nil {
		return err
	}
	var r proto.PartitionsReply
	if err := q.ask(proto.KindPartitions, &proto.Empty{}, &r); err != nil {
		return err
	}
	found := false
	q.j.Open("partitions", '[')
	for i, p := range r.Partitions {
		if name != "" && p.Name != name {
			continue
		}
		found = true
		slurmjson.Write(q.j, "", partitionFields, &jobtext.PartitionOf{Partition: p, CPUs: r.TotalCPUs[i],
			Cluster: q.facts.Config().Cluster})
	}
	q.j.Close(']')
	q.updated(q.j)
	if name != "" && !found {
		q.faults = append(q.faults, asFault(&fault{Number: errBadPartition, Text: proto.Text(proto.CodeInvalidPartition),
			Detail: notQueried("partition", name), Status: statusFound}, q.op.id(q.ver)))
	}
	return nil
}

func listPartitions(q *request) error { return q.partitions("") }
func getPartition(q *request) error   { return q.partitions(q.name) }

// reservations writes reservations, all or the named one.
func (q *request) reservations(name string) error {
	if err := q.since(); err != nil {
		return err
	}
	var r proto.ReservationsReply
	if err := q.ask(proto.KindReservations, &proto.Empty{}, &r); err != nil {
		return err
	}
	if name != "" && !slices.ContainsFunc(r.List, func(v *model.Reservation) bool { return v.Name == name }) {
		return &fault{Number: errQuery, Detail: notQueried("reservation", name)}
	}
	q.j.Open("reservations", '[')
	for i, v := range r.List {
		if name == "" || v.Name == name {
			slurmjson.Write(q.j, "", reservationFields, &jobtext.ReservationOf{Reservation: v, Size: &r.Sizes[i]})
		}
	}
	q.j.Close(']')
	q.updated(q.j)
	return nil
}

func listReservations(q *request) error { return q.reservations("") }
func getReservation(q *request) error   { return q.reservations(q.name) }

func listLicenses(q *request) error {
	var r proto.ConfigReply
	if err := q.ask(proto.KindConfig, &proto.Empty{}, &r); err != nil {
		return err
	}
	q.j.Open("licenses", '[')
	for _, l := range clustertext.LicensesOf(&r, "") {
		slurmjson.Write(q.j, "", licenseFields, &l)
	}
	q.j.Close(']')
	q.updated(q.j)
	return nil
}

func listShares(q *request) error {
	rq := &proto.SharesRequest{Accounts: q.words("accounts"), Names: q.words("users")}
	if len(rq.Names) > 0 {
		rq.Users = []uint32{model.NoID} // so that only names select
	}
	var r proto.SharesReply
	if err := q.ask(proto.KindShares, rq, &r); err != nil {
		return err
	}
	cluster := q.facts.Config().Cluster
	q.j.Open("shares", '{')
	q.j.Open("shares", '[')
	for i := range r.Rows {
		slurmjson.Write(q.j, "", shareFields, &clustertext.ShareRow{ShareRow: &r.Rows[i], Cluster: cluster})
		q.j.Flush(false)
	}
	q.j.Close(']')
	q.j.Num("total_shares", int64(len(r.Rows)))
	q.j.Close('}')
	return nil
}

// getResources is which parts of its nodes a running job has.
func getResources(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	rq := &proto.JobsRequest{}
	rq.Filter.Jobs, rq.Filter.States = []model.JobRef{ref}, model.JobStates()
	var job *model.Job
	if err := q.stream(proto.KindJobs, rq, func(part []byte) error {
		var chunk proto.JobsChunk
		err := proto.Decode(part, &chunk)
		for _, j := range chunk.Jobs {
			job = j
		}
		return err
	}); err != nil {
		return err
	}
	q.j.Open("nodes", '[')
	if job != nil && job.Run != nil && job.Run.Alloc != nil {
		fields := jobtext.LayoutJSON()
		for i := range job.Run.Alloc.Nodes {
			a := &job.Run.Alloc.Nodes[i]
			if n := q.facts.Node(a.Node); n != nil {
				slurmjson.Write(q.j, "", fields, &jobtext.LayoutOf{NodeAlloc: a, Def: n.Def})
			}
		}
	}
	q.j.Close(']')
	return nil
}
