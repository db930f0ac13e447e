package facade

import (
	"strconv"
	"strings"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// kinds are the words for what was measured.
var kinds = map[string]proto.HistoryOf{"cluster": proto.HistoryCluster, "partition": proto.HistoryPartition,
	"account": proto.HistoryAccount, "qos": proto.HistoryQOS, "node": proto.HistoryNode, "gpu": proto.HistoryGPU,
	"job": proto.HistoryJob}

// scales are the parts that one unit of a field has; others have one.
var scales = map[string]float64{"cpu_use": 100, "cpu_load": 100, "power": 10}

// history gives what was measured over time. The path has the kind, and the query what, from when and how finely.
func (q *request) history(kind string) (any, error) {
	set := q.r.URL.Query()
	rq := &proto.HistoryRequest{Of: kinds[kind]}
	if rq.Of == 0 {
		return nil, bad("history of %q: there is cluster, partition, account, qos, node, gpu, job", kind)
	}
	for _, name := range rest.Words(set["name"]) {
		rq.Names = append(rq.Names, strings.TrimPrefix(name, "task-"))
	}
	if id := strings.TrimPrefix(set.Get("job"), "task-"); id != "" {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil || rq.Of != proto.HistoryGPU {
			return nil, bad("job=%s: a job's number, for the history of gpu", id)
		}
		rq.Job = model.JobID(n)
	}
	rq.Start = model.Time(time.Now().Add(-time.Hour).UnixMilli())
	if err := q.moment("start", &rq.Start); err != nil {
		return nil, err
	}
	if err := q.moment("end", &rq.End); err != nil {
		return nil, err
	}
	if v := set.Get("step"); v != "" {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			return nil, bad("step=%s: seconds, whole minutes of them", v)
		}
		rq.StepS = n
	}
	type series struct {
		Name   string                `json:"name"`
		StepS  int64                 `json:"step"`
		Points map[string][]*float64 `json:"values"`
		Times  []string              `json:"timestamps"`
	}
	list, more := []*series{}, false
	err := q.stream(proto.KindHistory, rq, func(part []byte) error {
		var reply proto.HistoryReply
		if err := proto.Decode(part, &reply); err != nil {
			return err
		}
		more = more || reply.More
		for i := range reply.List {
			x := &reply.List[i]
			s := &series{Name: x.Name, StepS: x.StepS, Points: map[string][]*float64{}, Times: []string{}}
			for _, p := range x.Points {
				s.Times = append(s.Times, time.UnixMilli(int64(p.At)).UTC().Format(time.RFC3339))
				for k, f := range x.Of.Shown() {
					var v *float64
					if k < len(p.Values) && p.Values[k] >= 0 {
						n := float64(p.Values[k]) / max(1, scales[f.Name])
						v = &n
					}
					s.Points[f.Name] = append(s.Points[f.Name], v)
				}
			}
			list = append(list, s)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"kind": kind, "series": list, "more": more}, nil
}
