package page

import (
	"errors"

	"gbatch/ctld/rest"
	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// errEnough ends a stream of which no more is shown. It is a refusal, which the controller does not log as a failure.
var errEnough error = rpc.Errorf(proto.CodeBadRequest, "the page shows no more")

// ask makes a request with one answer.
func (q *request) ask(kind uint16, rq, reply proto.Message) error {
	return q.stream(kind, rq, func(part []byte) error { return proto.Decode(part, reply) })
}

// stream makes a request with an answer in parts.
func (q *request) stream(kind uint16, rq proto.Message, each func(part []byte) error) error {
	age, err := q.p.o.Cluster.Ask(q.ctx, q.who, kind, rq, each)
	q.age = max(q.age, age)
	return err
}

// begin is stream for an answer of which most rows are taken; 0: all.
func (q *request) begin(most int, kind uint16, rq proto.Message, each func(part []byte) error) error {
	own := *q
	if most > 0 {
		own.ctx = rest.Beginning(q.ctx)
	}
	err := own.stream(kind, rq, each)
	q.age = own.age
	return err
}

// jobs gives the jobs that match, from the first to which keep says yes, at most most of them; more: there are others.
func (q *request) jobs(rq *proto.JobsRequest, most int, keep func(*model.Job) bool) (list []*model.Job,
	rules *ask.Rulebook, more bool, err error) {
	rules = &ask.Rulebook{}
	err = q.begin(most, proto.KindJobs, rq, func(part []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		q.now = chunk.Now
		rules.Add(chunk.Rules)
		for _, j := range chunk.Jobs {
			if keep != nil && !keep(j) {
				continue
			}
			if len(list) == most {
				more = true
				return errEnough
			}
			list = append(list, j)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, rules, more, err
}

// nodes gives nodes, all or the named ones, with their units.
func (q *request) nodes(names []string, each func(*proto.NodeInfo)) error {
	n := 0
	err := q.stream(proto.KindNodes, &proto.NodesRequest{Names: names, Units: true}, func(part []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, i := range chunk.Nodes {
			if n++; n > maxNodes {
				return errEnough
			}
			each(i)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return err
}

// operates reports whether the reader may change nodes and everybody's jobs. The controller decides; a page leaves out
// buttons that would be refused.
func (q *request) operates() bool { return q.p.o.Cluster.MayAsk(q.who, proto.KindUpdateNode) == nil }
