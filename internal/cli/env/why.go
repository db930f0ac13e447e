package env

import (
	"fmt"
	"io"
	"strings"

	"gbatch/internal/client"
	"gbatch/internal/jobtext"
	"gbatch/internal/proto"
)

// PrintWhy asks and prints; with a JSON version as JSON.
func PrintWhy(e *Env, c *client.Client, refs []proto.JobRef, json string) error {
	if len(refs) == 0 {
		return fmt.Errorf("name the jobs, as in %s 12 13_4", map[bool]string{true: "gcontrol why", false: "gqueue --why"}[strings.HasSuffix(e.Program, "control")])
	}
	var reply proto.WhyReply
	if err := c.Call(proto.KindWhy, &proto.WhyRequest{Jobs: refs}, &reply); err != nil {
		return err
	}
	if json != "" {
		cluster, err := ClusterName(c)
		if err != nil {
			return err
		}
		j := e.JSONFrame("why", json)
		at := e.Clock()
		for _, x := range reply.List {
			jobtext.WhyJSON(j, x, at)
			j.Flush(false)
		}
		return e.JSONFinish(j, cluster, reply.Now)
	}
	for i, x := range reply.List {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		_, _ = io.WriteString(e.Stdout, jobtext.WhyText(x, reply.Now, e.Clock())) // gcli's flush tells of errors
	}
	if reply.Left > 0 {
		fmt.Fprintf(e.Stdout, "\n%d more tasks are not explained; name them.\n", reply.Left)
	}
	return nil
}
