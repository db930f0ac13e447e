package env

import (
	"fmt"
	"io"

	"gbatch/internal/client"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// PrintWhy asks and prints; with a JSON version as JSON. Without jobs it explains all pending jobs of the caller.
func PrintWhy(e *Env, c *client.Client, refs []model.JobRef, json string) error {
	reply, err := askWhy(c, refs)
	if err != nil {
		return err
	}
	left := ""
	if reply.Left > 0 {
		left = fmt.Sprintf("%d more jobs or tasks are not explained; name them.", reply.Left)
	}
	if json != "" {
		cluster, err := ClusterName(c)
		if err != nil {
			return err
		}
		j := e.JSONFrame("why", json)
		at := e.Clock()
		fields := jobtext.WhyJSON()
		for _, x := range reply.List {
			slurmjson.Write(j, "", fields, &jobtext.WhyOf{Explanation: x, Times: at})
			j.Flush(false)
		}
		j.Warning = left
		return e.JSONFinish(j, cluster, reply.Now)
	}
	for i, x := range reply.List {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		_, _ = io.WriteString(e.Stdout, jobtext.WhyText(x, reply.Now, e.Clock())) // gcli's flush tells of errors
	}
	if len(refs) == 0 && len(reply.List) == 0 {
		fmt.Fprintln(e.Stdout, "None of your jobs waits.")
	}
	if left != "" {
		fmt.Fprintf(e.Stdout, "\n%s\n", left)
	}
	return nil
}

// askWhy asks the controller and, for jobs that it has forgotten, accounting, because a job that ended long ago has a
// reason too.
func askWhy(c *client.Client, refs []model.JobRef) (*proto.WhyReply, error) {
	var reply proto.WhyReply
	err := c.Call(proto.KindWhy, &proto.WhyRequest{Jobs: refs, Mine: len(refs) == 0}, &reply)
	if err == nil || Code(err) != uint16(proto.CodeInvalidJob) || len(refs) == 0 {
		return &reply, err
	}
	all := &proto.WhyReply{}
	for _, ref := range refs {
		var one proto.WhyReply
		err := c.Call(proto.KindWhy, &proto.WhyRequest{Jobs: []model.JobRef{ref}}, &one)
		if err != nil && Code(err) == uint16(proto.CodeInvalidJob) {
			if one.List = endedLongAgo(c, ref); len(one.List) > 0 {
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
		all.List, all.Now, all.Left = append(all.List, one.List...), max(all.Now, one.Now), all.Left+one.Left
	}
	return all, nil
}

// endedLongAgo explains a job by its record; nothing where there is none, or accounting doesn't answer.
func endedLongAgo(c *client.Client, ref model.JobRef) []*model.Explanation {
	var out []*model.Explanation
	err := c.Stream(proto.KindAcct, &proto.AcctRequest{Jobs: []model.JobRef{ref}}, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			if r.End != 0 && r.Step == nil && len(out) < proto.MaxWhy {
				out = append(out, &model.Explanation{Job: r.Job, ArrayID: r.ArrayID, Task: r.Task, Name: r.Name, User: r.User,
					State: r.State, Text: jobtext.EndedText(r)})
			}
		}
		return nil
	})
	if err != nil {
		return nil // then the job is unknown, as the controller says
	}
	return out
}
