package env

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"gbatch/internal/client"
	"gbatch/internal/conf/locate"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// OnCluster is CheckClusters for a command that has no connection yet.
func (e *Env) OnCluster(names []string) error {
	if len(names) == 0 {
		return nil
	}
	c, err := e.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return e.CheckClusters(c, names)
}

// Clusters gives the Set function of -M. A list without a name is one of a cluster without a name: a script whose
// variable is not set asks for no cluster by mistake.
func Clusters(dst *[]string) func(string) error {
	return func(v string) error {
		list := SplitList(v)
		if len(list) == 0 {
			list = []string{""}
		}
		*dst = append(*dst, list...)
		return nil
	}
}

// CheckClusters complains about a cluster of -M that is not the one asked.
func (e *Env) CheckClusters(c *client.Client, names []string) error {
	for _, n := range names {
		if n == "all" {
			continue
		}
		own, err := ClusterName(c)
		if err != nil {
			return err
		}
		if n != own {
			return Complaint{fmt.Sprintf("'%s' can't be reached from here, or it is an invalid entry for --cluster: this is "+
				"%s; set GBATCH_CONF to the other cluster's configuration", n, own)}
		}
	}
	return nil
}

// Cluster asks for the cluster's name.
func (e *Env) Cluster() (string, error) {
	c, err := e.Connect()
	if err != nil {
		return "", Complaint{Text(err)}
	}
	defer c.Close()
	return ClusterName(c)
}

func ClusterName(c *client.Client) (string, error) {
	var ping proto.PingReply
	err := c.Call(proto.KindPing, &proto.Empty{}, &ping)
	return ping.Cluster, err
}

// RunningSteps asks for running steps, sorted by job and number, and says which nodes don't answer.
func (e *Env) RunningSteps(c *client.Client, rq *proto.StepsRequest) (steps []proto.RunningStep, now model.Time,
	err error) {
	err = c.Stream(proto.KindSteps, rq, func(body []byte) error {
		var chunk proto.StepsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		steps, now = append(steps, chunk.Steps...), chunk.Now
		for _, m := range chunk.Missing {
			e.Errorf("%s", m)
		}
		return nil
	})
	slices.SortFunc(steps, func(a, b proto.RunningStep) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Step.ID, b.Step.ID))
	})
	return steps, now, err
}

// StepsJSON writes running steps in a version of JSON.
func (e *Env) StepsJSON(c *client.Client, json string, steps []proto.RunningStep, now model.Time) error {
	cluster, err := ClusterName(c)
	if err != nil {
		return err
	}
	j := e.JSONFrame("steps", json)
	fields, view := jobtext.StepJSON(), &jobtext.JobView{Cluster: cluster, At: now}
	for i := range steps {
		slurmjson.Write(j, "", fields, &jobtext.StepRow{RunningStep: &steps[i], JobView: view})
		j.Flush(false)
	}
	return e.JSONFinish(j, cluster, now)
}

// HostNodes gives the nodes whose daemons run on this host: those that have a socket for steps here. In a job it is the
// job's own.
func (e *Env) HostNodes() (names []string, err error) {
	if own := e.Getenv("SLURMD_NODENAME"); own != "" {
		return []string{own}, nil
	}
	_, dir, err := locate.SocketDir(e.Getenv)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if name, is := strings.CutPrefix(f.Name(), proto.StepSocket("")); is && f.Type()&fs.ModeSocket != 0 {
			names = append(names, name)
		}
	}
	return names, nil
}
