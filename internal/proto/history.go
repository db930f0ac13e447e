package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// history.go is what was measured over time: samples that the leader sends to gdbd, and questions about them.

// HistoryOf says what a series is about.
type HistoryOf uint8

// The kinds. They are part of gdbd's file: only appended.
const (
	HistoryCluster   HistoryOf = iota + 1 // Name is ""
	HistoryPartition                      // its name
	HistoryAccount                        // its name
	HistoryQOS                            // its name
	HistoryNode                           // its name
	HistoryGPU                            // NODE/INDEX, of MIG instances NODE/mig:INDEX
	HistoryJob                            // its number, as text
)

// Intervals of samples, seconds, and for how long they are kept.
const (
	HistoryFineS   = 60
	HistoryFineFor = 24 * 3600
	HistoryCoarseS = 600
	HistoryLongFor = 30 * 24 * 3600
)

// HistoryField is one value of a sample. What is not known is -1.
type HistoryField struct {
	Name string
	Last bool // of several samples the last one counts; else their mean
}

var (
	loadFields = []HistoryField{{Name: "running"}, {Name: "pending"}, {Name: "cpus"}, {Name: "gpus"},
		{Name: "gpu_util"}, {Name: "cpus_total"}, {Name: "gpus_total"}}
	nodeFields = []HistoryField{{Name: "cpus"}, {Name: "cpu_load"}, {Name: "mem"}, {Name: "gpus"}, {Name: "gpu_util"},
		{Name: "power"}}
	gpuFields = []HistoryField{{Name: "gpu_util"}, {Name: "gpu_mem"}, {Name: "power"}, {Name: "temp"},
		{Name: "job", Last: true}, {Name: "uid", Last: true}}
	jobFields = []HistoryField{{Name: "cpu_use"}, {Name: "mem"}, {Name: "gpu_util"}, {Name: "gpu_mem"}, {Name: "power"},
		{Name: "uid", Last: true}}
)

// Places of values that say whose a sample is.
const (
	HistoryGPUJob   = 4
	HistoryGPUOwner = 5
	HistoryJobOwner = 5
)

// Fields gives the values of a kind's samples, in order; they are only appended. running and pending are jobs; cpus and
// gpus are held by jobs; gpu_util is percent, of several GPUs their mean; cpu_use and cpu_load are hundredths; mem and
// gpu_mem are MiB, power is tenths of a watt, temp degrees Celsius.
func (of HistoryOf) Fields() []HistoryField {
	switch of {
	case HistoryCluster, HistoryPartition, HistoryAccount, HistoryQOS:
		return loadFields
	case HistoryNode:
		return nodeFields
	case HistoryGPU:
		return gpuFields
	case HistoryJob:
		return jobFields
	}
	return nil
}

// Shown gives the fields that answers have: the last one, whose a sample is, is gdbd's own.
func (of HistoryOf) Shown() []HistoryField {
	f := of.Fields()
	if of == HistoryGPU || of == HistoryJob {
		return f[:len(f)-1]
	}
	return f
}

// Sample is what was measured of one thing.
type Sample struct {
	Of     HistoryOf
	Name   string
	Values []int64 // see Fields
}

func (x *Sample) Wire(c *wire.C) {
	wire.Int(c, &x.Of)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Ints(c, &x.Values, model.MaxFew)
}

// Limits of history.
const (
	MaxHistoryFields = 32
	MaxSamples       = 4096      // in one message
	MaxSampleParts   = 32        // messages of one minute
	MaxHistoryNames  = 1024      // series of one question
	MaxHistoryPoints = 64 * 1024 // of one series
	HistoryPart      = 4096      // points in a part of an answer, about
)

// Samples is a part of what was measured in the minute that ends at At. One that is sent again takes its own place.
type Samples struct {
	At   model.Time
	Part int32
	List []Sample
}

func (x *Samples) Wire(c *wire.C) {
	wire.Int(c, &x.At)
	wire.Int(c, &x.Part)
	wire.List(c, &x.List, MaxSamples)
}

// HistoryRequest asks for series. Without names it means all of a kind; a GPU's name that ends in / means all of a
// node.
type HistoryRequest struct {
	Of    HistoryOf
	Names []string
	Start model.Time
	End   model.Time  // 0: now
	StepS int64       // seconds from point to point; 0: as fine as there is
	Job   model.JobID // of GPUs: only while this job had them
}

func (x *HistoryRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Of)
	wire.Texts(c, &x.Names, MaxHistoryNames, model.MaxName)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Int(c, &x.StepS)
	wire.Int(c, &x.Job)
}

// HistoryQuery is a question that the leader passes on to gdbd.
type HistoryQuery struct {
	Ask  HistoryRequest
	Only bool // of jobs and of GPUs' holders only this user's
	UID  uint32
}

func (x *HistoryQuery) Wire(c *wire.C) {
	wire.Struct(c, &x.Ask)
	wire.Bool(c, &x.Only)
	wire.Int(c, &x.UID)
}

// HistoryPoint is the mean of a time that ends at At.
type HistoryPoint struct {
	At     model.Time
	Values []int64
}

func (x *HistoryPoint) Wire(c *wire.C) {
	wire.Int(c, &x.At)
	wire.Ints(c, &x.Values, model.MaxFew)
}

// HistorySeries is one series, in order of time.
type HistorySeries struct {
	Of     HistoryOf
	Name   string
	StepS  int64
	Points []HistoryPoint
}

func (x *HistorySeries) Wire(c *wire.C) {
	wire.Int(c, &x.Of)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.StepS)
	wire.List(c, &x.Points, MaxHistoryPoints)
}

// HistoryReply is a part of an answer. More: there are series that were left out.
type HistoryReply struct {
	List []HistorySeries
	More bool
}

func (x *HistoryReply) Wire(c *wire.C) {
	wire.List(c, &x.List, MaxHistoryNames)
	wire.Bool(c, &x.More)
}

// JobUse is what a job uses on a node now.
type JobUse struct {
	Job      model.JobID
	Attempt  uint32
	CPUCenti int64 // hundredths of a CPU, since the last time; -1: not known
	MemMiB   int64 // of its processes; -1: not known
}

func (x *JobUse) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.CPUCenti)
	wire.Int(c, &x.MemMiB)
}

// MaxJobUses bounds Heartbeat.Uses.
const MaxJobUses = 1024
