package model

import "gbatch/internal/wire"

// AskRules are a partition's and the cluster's defaults and bounds for requests. Package ask computes a job's request
// from them and its Spec. Lists of jobs carry the rules, once for each partition.
type AskRules struct {
	Partition string
	QOS       string // the rules are for jobs of this QOS, which lifts limits of the partition; "": for all other jobs

	MinNodes      int32
	MaxNodes      int32 // 0: no limit
	DefMemPerCPU  int64 // MiB; 0: none. At most one of the two is set
	DefMemPerNode int64
	DefMemPerGPU  int64
	MaxMemPerCPU  int64 // MiB; 0: no limit
	MaxMemPerNode int64
	DefCPUPerGPU  int32        // 0: none
	Billing       []TRESWeight // TRESBillingWeights; empty: CPUs
	Flags         PrioFlags    // how Billing is summed
	NodeCPUs      int32        // the most that one node gives to a job; 0: not known
}

func (x *AskRules) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Text(c, &x.QOS, MaxName)
	wire.Int(c, &x.MinNodes)
	wire.Int(c, &x.MaxNodes)
	wire.Int(c, &x.DefMemPerCPU)
	wire.Int(c, &x.DefMemPerNode)
	wire.Int(c, &x.DefMemPerGPU)
	wire.Int(c, &x.MaxMemPerCPU)
	wire.Int(c, &x.MaxMemPerNode)
	wire.Int(c, &x.DefCPUPerGPU)
	wire.List(c, &x.Billing, MaxFew)
	wire.Int(c, &x.Flags)
	wire.Int(c, &x.NodeCPUs)
}
