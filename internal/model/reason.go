package model

import (
	"strings"

	"gbatch/internal/wire"
)

// Reason is why a job is pending or why it failed: one of Slurm's job reason codes. The numbers are stored: append
// only.
type Reason uint8

// The reasons in use.
const (
	ReasonNone Reason = iota
	ReasonPriority
	ReasonDependency
	ReasonResources
	ReasonPartitionNodeLimit
	ReasonPartitionTimeLimit
	ReasonPartitionDown
	ReasonPartitionInactive
	ReasonJobHeldAdmin
	ReasonJobHeldUser
	ReasonBeginTime
	ReasonReqNodeNotAvail
	ReasonNodeDown
	ReasonBadConstraints
	ReasonDependencyNeverSatisfied
	ReasonJobArrayTaskLimit
	ReasonLaunchFailedRequeued
	ReasonNonZeroExitCode
	ReasonTimeLimit
	ReasonSystemFailure
	ReasonRaisedSignal
	ReasonOutOfMemory
	ReasonDeadLine
	ReasonCleaning
	ReasonMaxMemPerLimit
	ReasonAccountingPolicy
	ReasonAssocGrpJobsLimit
	ReasonAssocGrpSubmitJobsLimit
	ReasonAssocGrpWallLimit
	ReasonAssocMaxJobsLimit
	ReasonAssocMaxSubmitJobLimit
	ReasonAssocMaxWallDurationPerJobLimit
	ReasonQOSGrpJobsLimit
	ReasonQOSGrpSubmitJobsLimit
	ReasonQOSGrpWallLimit
	ReasonQOSMaxJobsPerUserLimit
	ReasonQOSMaxSubmitJobPerUserLimit
	ReasonQOSMaxWallDurationPerJobLimit
	ReasonMaxJobsPerAccount
	ReasonMaxSubmitJobsPerAccount
	ReasonQOSUsageThreshold
	ReasonInvalidAccount
	ReasonInvalidQOS
	ReasonLicenses
	ReasonReservation
	ReasonReservationDeleted
	ReasonAccountNotAllowed // in the partition, since the job was submitted
	ReasonQOSNotAllowed
	ReasonJobLaunchFailure // it never began, because its files or its program can't be opened
	ReasonAccountBalance   // the account's credit is used up
	ReasonGPUOutOfMemory   // it failed because a GPU had too little memory
	ReasonHeadroom         // the rest of the partition is kept back (ReservePercent)
	ReasonMaxRequeue       // it went back into the queue for its exit codes too often (MaxBatchRequeue)
	ReasonInactiveLimit    // the command that had it has not been heard of for too long (InactiveLimit)
	numReasons             // below limitReasons
)

var reasonNames = [numReasons]string{
	ReasonNone: "None", ReasonPriority: "Priority", ReasonDependency: "Dependency", ReasonResources: "Resources",
	ReasonPartitionNodeLimit: "PartitionNodeLimit", ReasonPartitionTimeLimit: "PartitionTimeLimit",
	ReasonPartitionDown: "PartitionDown", ReasonPartitionInactive: "PartitionInactive",
	ReasonJobHeldAdmin: "JobHeldAdmin", ReasonJobHeldUser: "JobHeldUser", ReasonBeginTime: "BeginTime",
	ReasonReqNodeNotAvail: "ReqNodeNotAvail", ReasonNodeDown: "NodeDown", ReasonBadConstraints: "BadConstraints",
	ReasonDependencyNeverSatisfied: "DependencyNeverSatisfied", ReasonJobArrayTaskLimit: "JobArrayTaskLimit",
	ReasonLaunchFailedRequeued: "launch_failed_requeued_held", ReasonNonZeroExitCode: "NonZeroExitCode",
	ReasonTimeLimit: "TimeLimit", ReasonSystemFailure: "SystemFailure", ReasonRaisedSignal: "RaisedSignal",
	ReasonOutOfMemory: "OutOfMemory", ReasonDeadLine: "DeadLine", ReasonCleaning: "Cleaning",
	ReasonMaxMemPerLimit:                  "MaxMemPerLimit",
	ReasonAccountingPolicy:                "AccountingPolicy",
	ReasonAssocGrpJobsLimit:               "AssocGrpJobsLimit",
	ReasonAssocGrpSubmitJobsLimit:         "AssocGrpSubmitJobsLimit",
	ReasonAssocGrpWallLimit:               "AssocGrpWallLimit",
	ReasonAssocMaxJobsLimit:               "AssocMaxJobsLimit",
	ReasonAssocMaxSubmitJobLimit:          "AssocMaxSubmitJobLimit",
	ReasonAssocMaxWallDurationPerJobLimit: "AssocMaxWallDurationPerJobLimit",
	ReasonQOSGrpJobsLimit:                 "QOSGrpJobsLimit",
	ReasonQOSGrpSubmitJobsLimit:           "QOSGrpSubmitJobsLimit",
	ReasonQOSGrpWallLimit:                 "QOSGrpWallLimit",
	ReasonQOSMaxJobsPerUserLimit:          "QOSMaxJobsPerUserLimit",
	ReasonQOSMaxSubmitJobPerUserLimit:     "QOSMaxSubmitJobPerUserLimit",
	ReasonQOSMaxWallDurationPerJobLimit:   "QOSMaxWallDurationPerJobLimit",
	ReasonMaxJobsPerAccount:               "MaxJobsPerAccount",
	ReasonMaxSubmitJobsPerAccount:         "MaxSubmitJobsPerAccount",
	ReasonQOSUsageThreshold:               "QOSUsageThreshold",
	ReasonInvalidAccount:                  "InvalidAccount",
	ReasonInvalidQOS:                      "InvalidQOS",
	ReasonLicenses:                        "Licenses",
	ReasonReservation:                     "Reservation",
	ReasonReservationDeleted:              "ReservationDeleted",
	ReasonAccountNotAllowed:               "AccountNotAllowed",
	ReasonQOSNotAllowed:                   "QOSNotAllowed",
	ReasonJobLaunchFailure:                "JobLaunchFailure",
	ReasonAccountBalance:                  "AccountBalance",
	ReasonGPUOutOfMemory:                  "GpuOutOfMemory",
	ReasonHeadroom:                        "PartitionHeadroom",
	ReasonMaxRequeue:                      "JobHoldMaxRequeue",
	ReasonInactiveLimit:                   "InactiveLimit",
}

// SaysWhyHeld reports whether it is more telling than JobHeldAdmin.
func (r Reason) SaysWhyHeld() bool { return r == ReasonLaunchFailedRequeued || r == ReasonMaxRequeue }

// String gives Slurm's word.
func (r Reason) String() string {
	if r >= numReasons {
		if w := r.limitWord(); w != "" {
			return w
		}
		return "None"
	}
	return reasonNames[r]
}

// What Slurm's tools print behind ReqNodeNotAvail. The planner writes one of these as a job's Why.
const (
	WhyMaintenance = "Reserved for maintenance"
	WhyOthers      = "May be reserved for other job"

	unavailablePrefix = "UnavailableNodes:"
)

// WhyUnavailable says that a node that the job asks for takes no jobs.
func WhyUnavailable(node string) string { return unavailablePrefix + node }

// UnavailableNode gives the node of WhyUnavailable.
func UnavailableNode(why string) (node string, ok bool) {
	return strings.CutPrefix(why, unavailablePrefix)
}

// NotAvailText gives what is shown behind ReqNodeNotAvail, or "".
func (j *Job) NotAvailText() string {
	if j.Reason != ReasonReqNodeNotAvail {
		return ""
	}
	if _, ok := UnavailableNode(j.Why); ok || j.Why == WhyMaintenance || j.Why == WhyOthers {
		return j.Why
	}
	return "" // a sentence of another kind: --why has it
}

// LimitKind is a family of limits on resources; each has a reason for every kind of resource. The order is stored (see
// LimitReason): append only.
type LimitKind uint8

// The families. RunMins limits of a QOS per user or account use the reasons of the plain RunMins limit.
const (
	AssocGrp LimitKind = iota
	AssocGrpMins
	AssocGrpRunMins
	AssocPerJob
	AssocPerNode
	AssocJobMins
	QOSGrp
	QOSGrpMins
	QOSGrpRunMins
	QOSPerJob
	QOSPerNode
	QOSPerUser
	QOSPerAccount
	QOSJobMins
	QOSMin
	numLimitKinds
)

// limitSorts is the number of kinds of resources that reasons distinguish.
const limitSorts = 8

// TRESSort gives the kind of a resource: its column in the table of reasons.
func TRESSort(tres string) int {
	switch {
	case tres == "cpu":
		return 0
	case tres == "mem":
		return 1
	case tres == "node":
		return 2
	case strings.HasPrefix(tres, gresTRES):
		return 3
	case strings.HasPrefix(tres, licenseTRES):
		return 4
	case tres == "billing":
		return 5
	case tres == "energy":
		return 6
	}
	return 7
}

// LimitReason gives Slurm's reason for a job that a limit on a resource holds.
func LimitReason(k LimitKind, tres string) Reason {
	if k >= numLimitKinds {
		return ReasonAccountingPolicy
	}
	return limitReasons + Reason(k)*limitSorts + Reason(TRESSort(tres))
}

// limitReasons is the number of the first reason of the table; all other reasons are below.
const limitReasons Reason = 100

// limitWords are the reasons as Slurm's page of job reason codes spells them, by family: CPU, memory, node, generic
// resource, license, billing, energy, unknown.
var limitWords = [numLimitKinds][limitSorts]string{
	AssocGrp: {"AssocGrpCpuLimit", "AssocGrpMemLimit", "AssocGrpNodeLimit", "AssocGrpGRES", "AssocGrpLicense",
		"AssocGrpBilling", "AssocGrpEnergy", "AssocGrpUnknown"},
	AssocGrpMins: {"AssocGrpCPUMinutesLimit", "AssocGrpMemMinutes", "AssocGrpNodeMinutes", "AssocGrpGRESMinutes",
		"AssocGrpLicenseMinutes", "AssocGrpBillingMinutes",
		"AssocGrpEnergyMinutes", "AssocGrpUnknownMinutes"},
	AssocGrpRunMins: {"AssocGrpCPURunMinutesLimit", "AssocGrpMemRunMinutes", "AssocGrpNodeRunMinutes",
		"AssocGrpGRESRunMinutes", "AssocGrpLicenseRunMinutes",
		"AssocGrpBillingRunMinutes", "AssocGrpEnergyRunMinutes", "AssocGrpUnknownRunMinutes"},
	AssocPerJob: {"AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxNodePerJobLimit", "AssocMaxGRESPerJob",
		"AssocMaxLicensePerJob", "AssocMaxBillingPerJob",
		"AssocMaxEnergyPerJob", "AssocMaxUnknownPerJob"},
	AssocPerNode: {"AssocMaxCpuPerNode", "AssocMaxMemPerNode", "AssocMaxUnknownPerNode", "AssocMaxGRESPerNode",
		"AssocMaxUnknownPerNode", "AssocMaxBillingPerNode",
		"AssocMaxEnergyPerNode", "AssocMaxUnknownPerNode"},
	AssocJobMins: {"AssocMaxCpuMinutesPerJobLimit", "AssocMaxMemMinutesPerJob", "AssocMaxNodeMinutesPerJob",
		"AssocMaxGRESMinutesPerJob", "AssocMaxLicenseMinutesPerJob",
		"AssocMaxBillingMinutesPerJob", "AssocMaxEnergyMinutesPerJob", "AssocMaxUnknownMinutesPerJob"},
	QOSGrp: {"QOSGrpCpuLimit", "QOSGrpMemLimit", "QOSGrpNodeLimit", "QOSGrpGRES", "QOSGrpLicense", "QOSGrpBilling",
		"QOSGrpEnergy", "QOSGrpUnknown"},
	QOSGrpMins: {"QOSGrpCPUMinutesLimit", "QOSGrpMemoryMinutes", "QOSGrpNodeMinutes", "QOSGrpGRESMinutes",
		"QOSGrpLicenseMinutes", "QOSGrpBillingMinutes",
		"QOSGrpEnergyMinutes", "QOSGrpUnknownMinutes"},
	QOSGrpRunMins: {"QOSGrpCPURunMinutesLimit", "QOSGrpMemoryRunMinutes", "QOSGrpNodeRunMinutes", "QOSGrpGRESRunMinutes",
		"QOSGrpLicenseRunMinutes",
		"QOSGrpBillingRunMinutes", "QOSGrpEnergyRunMinutes", "QOSGrpUnknownRunMinutes"},
	QOSPerJob: {"QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxNodePerJobLimit", "QOSMaxGRESPerJob",
		"QOSMaxLicensePerJob", "QOSMaxBillingPerJob",
		"QOSMaxEnergyPerJob", "QOSMaxUnknownPerJob"},
	QOSPerNode: {"QOSMaxCpuPerNode", "QOSMaxMemoryPerNode", "QOSMaxUnknownPerNode", "QOSMaxGRESPerNode",
		"QOSMaxUnknownPerNode", "QOSMaxBillingPerNode",
		"QOSMaxEnergyPerNode", "QOSMaxUnknownPerNode"},
	QOSPerUser: {"QOSMaxCpuPerUserLimit", "QOSMaxMemoryPerUser", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerUser",
		"QOSMaxLicensePerUser", "QOSMaxBillingPerUser",
		"QOSMaxEnergyPerUser", "QOSMaxUnknownPerUser"},
	QOSPerAccount: {"MaxCpuPerAccount", "MaxMemoryPerAccount", "MaxNodePerAccount", "MaxGRESPerAccount",
		"MaxLicensePerAccount", "MaxBillingPerAccount",
		"MaxEnergyPerAccount", "MaxUnknownPerAccount"},
	QOSJobMins: {"QOSMaxCpuMinutesPerJobLimit", "QOSMaxMemoryMinutesPerJob", "QOSMaxNodeMinutesPerJob",
		"QOSMaxGRESMinutesPerJob", "QOSMaxLicenseMinutesPerJob",
		"QOSMaxBillingMinutesPerJob", "QOSMaxEnergyMinutesPerJob", "QOSMaxUnknownMinutesPerJob"},
	QOSMin: {"QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode", "QOSMinGRES", "QOSMinLicense", "QOSMinBilling",
		"QOSMinEnergy", "QOSMinUnknown"},
}

// limitWord gives the token of a reason of the table, or "".
func (r Reason) limitWord() string {
	if r < limitReasons || r >= limitReasons+Reason(numLimitKinds)*limitSorts {
		return ""
	}
	n := r - limitReasons
	return limitWords[n/limitSorts][n%limitSorts]
}

// Explanation says why a job waits, when it is expected to start and what would let it start sooner. It is computed on
// request and never stored. Sentences contain moments as <t:N>, N in Unix milliseconds; the reader replaces them by
// times.
type Explanation struct {
	Job     JobID
	ArrayID JobID
	Task    int32
	Tasks   TaskSet // for an array's own record: its pending tasks
	Name    string
	User    string
	State   JobState
	Text    string // for a job that is not pending: what it does, or how it ended; otherwise a remark on Start
	Causes  []Cause
	Places  []QueuePlace
	Start   Time // expected; 0: unknown
	Nodes   []string
	Changes []WhatIf

	// Between these moments it starts if jobs run as long as their users' jobs did lately; 0: not known.
	Early, Late Time
}

func (x *Explanation) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.List(c, &x.Tasks, MaxRanges)
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.User, MaxName)
	wire.Int(c, &x.State)
	wire.Text(c, &x.Text, MaxText)
	wire.List(c, &x.Causes, MaxList)
	wire.List(c, &x.Places, MaxMany)
	wire.Int(c, &x.Start)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.List(c, &x.Changes, MaxList)
	wire.Int(c, &x.Early)
	wire.Int(c, &x.Late)
}

// Cause is one thing that keeps a job waiting. The first of a list is the decisive one.
type Cause struct {
	Reason    Reason
	Partition string // "": in all partitions
	Text      string
	Nodes     []string // nodes that the cause is about, a few at most
	Jobs      []JobID  // likewise
}

func (x *Cause) Wire(c *wire.C) {
	wire.Int(c, &x.Reason)
	wire.Text(c, &x.Partition, MaxName)
	wire.Text(c, &x.Text, MaxText)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Ints(c, &x.Jobs, MaxMany)
}

// QueuePlace is a job's place in a partition's queue.
type QueuePlace struct {
	Partition string
	Ahead     int32 // jobs ahead of it
	Queue     int32 // jobs in the queue
}

func (x *QueuePlace) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Int(c, &x.Ahead)
	wire.Int(c, &x.Queue)
}

// WhatIf is a single change of a request, and its effect.
type WhatIf struct {
	Option    string // as an option: --time=1:30:00
	Start     Time
	Now       bool // Start is now
	Partition string
	Nodes     []string
}

func (x *WhatIf) Wire(c *wire.C) {
	wire.Text(c, &x.Option, MaxName)
	wire.Int(c, &x.Start)
	wire.Bool(c, &x.Now)
	wire.Text(c, &x.Partition, MaxName)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
}
