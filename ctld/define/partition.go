package define

import (
	"strconv"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// Partition gives the command for a change of a partition.
func Partition(v *state.View, rq *proto.UpdatePartitionRequest) (*state.Define, error) {
	old := v.Partition(rq.Name)
	switch {
	case rq.Name == "":
		return nil, refuse(proto.CodeInvalidPartition, "PartitionName= names none")
	case rq.Action == proto.CreatePartition && old != nil:
		return nil, refuse(proto.CodeInvalidPartition, "%s is there already; change it with gcontrol update "+
			"PartitionName=%s", rq.Name, rq.Name)
	case rq.Action == proto.CreatePartition && len(v.Config().Partitions) >= conf.MaxPartitions:
		return nil, refuse(proto.CodeInvalidPartition, "there are %d partitions, the most", conf.MaxPartitions)
	case rq.Action != proto.CreatePartition && old == nil:
		return nil, refuse(proto.CodeInvalidPartition, "%s", rq.Name)
	case rq.Action == proto.DeletePartition:
		if job, n := usedBy(v, rq.Name); n > 0 {
			return nil, refuse(proto.CodePartitionInUse, "%s, by %s; cancel them or move them to another partition first",
				rq.Name, jobCount(job, n))
		}
		return &state.Define{DropParts: []string{rq.Name}}, nil
	case rq.Action == proto.ChangePartition && len(rq.Set) == 0:
		return nil, refuse(proto.CodeBadRequest, "nothing to change: give KEY=VALUE words behind the partition, such as "+
			"State=DOWN or MaxTime=2:00:00")
	case rq.Action != proto.ChangePartition && rq.Action != proto.CreatePartition:
		return nil, refuse(proto.CodeBadRequest, "an unknown change of partitions (%d)", rq.Action)
	}
	p, err := conf.DefinePartition(v.Config(), old, rq.Name, rq.Set)
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if p.QOS != "" && v.QOS(p.QOS) == nil {
		return nil, refuse(proto.CodeInvalidQOS, "%s", p.QOS)
	}
	cmd := &state.Define{Create: rq.Action == proto.CreatePartition, Parts: []*model.Partition{p}}
	if !p.Default || old != nil && old.Default {
		return cmd, nil
	}
	for _, other := range v.Config().Partitions { // one partition is the default
		if !other.Default || other.Name == p.Name {
			continue
		}
		o, err := conf.DefinePartition(v.Config(), other, other.Name, []model.KV{{Key: "Default", Value: "NO"}})
		if err != nil {
			return nil, refuse(proto.CodeBadRequest, "%v", err)
		}
		cmd.Parts, cmd.Create = append(cmd.Parts, o), false // only the first is new
	}
	return cmd, nil
}

// usedBy gives the first unfinished job in a partition or waiting for it, and how many there are.
func usedBy(v *state.View, part string) (first *model.Job, n int) {
	v.Jobs(func(j *model.Job) bool {
		if !j.State.Finished() && (has(j.Spec.Partitions, part) || j.Run != nil && j.Partition() == part) {
			if n++; first == nil {
				first = j
			}
		}
		return true
	})
	return first, n
}

func jobCount(first *model.Job, n int) string {
	if n == 1 {
		return "job " + strconv.FormatUint(uint64(first.ID), 10)
	}
	return strconv.Itoa(n) + " jobs, job " + strconv.FormatUint(uint64(first.ID), 10) + " among them"
}

func has(list []string, s string) bool {
	for _, x := range list {
		if strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}
