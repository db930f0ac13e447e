package info

import (
	"fmt"
	"slices"

	"gbatch/internal/cli/env"
	"gbatch/internal/clustertext"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// pools prints ginfo --pools: what each partition has, and the quotas of accounts there.
func (i *info) printPools() int {
	c, err := i.Connect()
	if err != nil {
		i.Errorf("%s", env.Text(err))
		return 1
	}
	defer c.Close()
	if err := i.CheckClusters(c, i.clusters); err != nil {
		i.Errorf("%v", err)
		return 1
	}
	var reply proto.PoolsReply
	if err := c.Call(proto.KindPools, &proto.Empty{}, &reply); err != nil {
		fmt.Fprintf(i.Stderr, "slurm_load_partitions: %s\n", env.Text(err))
		return 1
	}
	reply.Pools = slices.DeleteFunc(reply.Pools, func(p proto.Pool) bool {
		return i.none || len(i.parts) > 0 && !slices.Contains(i.parts, p.Name)
	})
	if i.json == "" {
		if _, err := i.Stdout.Write(clustertext.PoolsTable(reply.Pools, !i.noHeader)); err != nil {
			i.Errorf("%v", err)
			return 1
		}
		return 0
	}
	cluster, err := env.ClusterName(c)
	if err != nil {
		fmt.Fprintf(i.Stderr, "slurm_load_ctl_conf error: %s\n", env.Text(err))
		return 1
	}
	j, fields := i.JSONFrame("pools", i.json), clustertext.PoolJSON()
	for k := range reply.Pools {
		slurmjson.Write(j, "", fields, &reply.Pools[k])
		j.Flush(false)
	}
	if err := i.JSONFinish(j, cluster, reply.Now); err != nil {
		i.Errorf("%v", err)
		return 1
	}
	return 0
}
