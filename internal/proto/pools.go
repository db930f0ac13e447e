package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// A pool is a partition as people see it who share it: what it has, who may have how much of it, and who waits.

// PoolsReply has the partitions in the order of the configuration.
type PoolsReply struct {
	Now   model.Time
	Pools []Pool
}

func (x *PoolsReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.List(c, &x.Pools, model.MaxMany)
}

// Pool is one partition.
type Pool struct {
	Name    string
	Running int64 // jobs with resources
	Pending int64 // jobs; every task of an array is one
	TRES    []PoolTRES
	Quotas  []PoolQuota
	Order   string // QueuePolicy; "": the cluster's
}

func (x *Pool) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.Running)
	wire.Int(c, &x.Pending)
	wire.List(c, &x.TRES, model.MaxFew)
	wire.List(c, &x.Quotas, model.MaxMany)
	wire.Text(c, &x.Order, model.MaxName)
}

// PoolTRES is one resource of a partition's nodes, in its units (MiB of memory). Nodes of several partitions count in
// each, with the jobs of all.
type PoolTRES struct {
	TRES     string // cpu, mem, gres/gpu, gres/gpu:h100
	Total    int64
	Alloc    int64
	Reserved int64 // not allocated: of nodes that a reservation has, and Kept
	Down     int64 // out of service, and not allocated
	Headroom int64 // ReservePercent, as a number of what is in service
	Kept     int64 // free, and only for jobs that may have the headroom
}

func (x *PoolTRES) Wire(c *wire.C) {
	wire.Text(c, &x.TRES, model.MaxName)
	wire.Int(c, &x.Total)
	wire.Int(c, &x.Alloc)
	wire.Int(c, &x.Reserved)
	wire.Int(c, &x.Down)
	wire.Int(c, &x.Headroom)
	wire.Int(c, &x.Kept)
}

// Free gives what a job can have now.
func (x *PoolTRES) Free() int64 { return max(0, x.Total-x.Alloc-x.Reserved-x.Down) }

// PoolQuota is what an account, with those below it, may have of one resource of a partition.
type PoolQuota struct {
	Account    string
	TRES       string
	Limit      int64 // GrpTRES; -1: none
	Guaranteed int64 // GuaranteedTRES
	Used       int64
	Pending    int64 // jobs that wait
}

func (x *PoolQuota) Wire(c *wire.C) {
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.TRES, model.MaxName)
	wire.Int(c, &x.Limit)
	wire.Int(c, &x.Guaranteed)
	wire.Int(c, &x.Used)
	wire.Int(c, &x.Pending)
}

// Borrowed gives what it uses above its guarantee.
func (x *PoolQuota) Borrowed() int64 { return max(0, x.Used-x.Guaranteed) }
