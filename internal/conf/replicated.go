package conf

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// leastDBDMsgs is the least bound of the records that wait for gdbd, if MaxDBDMsgs gives none. It is Slurm's.
const leastDBDMsgs = 10_000

// Model returns the part of the configuration that changes decisions, as the controllers replicate it.
func (c *Config) Model() *model.Config {
	m := &model.Config{
		Cluster: c.ClusterName,
		Params: model.Params{
			KillWaitS: c.KillWaitS, MinJobAgeS: c.MinJobAgeS, NodeTimeoutS: c.SlurmdTimeoutS,
			HeartbeatS: c.NodeHeartbeatIntervalS,
			MaxJobs:    int32(c.MaxJobCount), MaxArraySize: int32(c.MaxArraySize), JobRequeue: c.JobRequeue,
			DefMemPerCPU: c.Mem.DefPerCPUMiB, DefMemPerNode: c.Mem.DefPerNodeMiB,
			MaxMemPerCPU: c.Mem.MaxPerCPUMiB, MaxMemPerNode: c.Mem.MaxPerNodeMiB,
			MemConsumed: c.Select.Memory, WholeCores: c.Select.Unit != UnitCPU,
			EnforceLimits: c.EnforcePartLimits, ReturnToService: int32(c.ReturnToService),
			QueueDepth: int32(c.Scheduler.QueueDepth), NeedAccount: c.Enforce.Associations,
			MaxScript: int32(c.Scheduler.MaxScriptBytes), DefaultAccount: c.DefaultAccount,
			Priority: c.Priority.model(), Preempt: c.Preempt.model(), HoldLimits: c.Enforce.Limits, EnforceQOS: c.Enforce.QOS,
			EnforceSafe: c.Enforce.Safe,
			PrivateData: c.PrivateData, UserTop: c.Scheduler.EnableUserTop, TrackTRES: c.AccountingStorageTRES,
			Backfill: c.Scheduler.backfill(), MaxStart: count32(c.Scheduler.MaxStart), Rules: c.NodeRules(),
			LimitStop: c.Scheduler.AssocLimitStop, MaxArrayTasks: count32(c.Scheduler.MaxArrayTasks),
			MaxStored: c.Scheduler.MaxStoredBytes, PartDepth: count32(c.Scheduler.PartitionDepth),
			MailProg: c.MailProg, MailDomain: c.MailDomain,
		},
		Accounts: c.Accounts,
		Show:     c.KeyValues(),
		Hash:     c.Hash,
		AtStart:  c.atStart(),
	}
	m.Params.Price, m.Params.Elastic, m.Params.Cache = c.Price, c.Elastic, c.GPUCache
	m.Params.ExpediteHoldS = c.ExpediteHoldS
	m.Params.Exits, m.Params.ResvOverS = c.exits(), c.ResvOverRunS
	m.Params.LeadOn, m.Params.LeadOff = c.PrimaryOnProg, c.PrimaryOffProg
	m.Params.ResvProlog, m.Params.ResvEpilog = c.ResvProlog, c.ResvEpilog
	m.Params.TrackWCKey, m.Params.EnforceWCKeys = c.TrackWCKey, c.Enforce.WCKeys
	m.Params.CompleteWaitS, m.Params.CompleteParts = c.CompleteWaitS, c.Scheduler.CompletingByPart
	if slices.Contains(c.LaunchParameters, interactiveStep) {
		m.Params.ShellStep = c.InteractiveStepOptions
	}
	m.Params.InactiveS = c.InactiveLimitS
	m.Params.WholeSockets = c.Select.Unit == UnitSocket
	m.Params.WholeNodes = c.Select.Unit == UnitNode
	m.Params.OneTask, m.Params.BindGres = c.Select.OneTaskPerCore, c.Select.EnforceGresBind
	m.Params.CyclicCores = c.Select.Unit == UnitCore && !c.Select.BlockDistCores
	m.Params.UserTriggers = hasFold(splitList(c.SlurmctldParameters), userTriggers)
	m.Params.Crontabs = slices.Contains(c.ScronParameters, scronEnable)
	m.Params.CronCancel = slices.Contains(c.ScronParameters, scronCancel)
	if c.FirstJobID > 1 {
		m.Params.FirstJob = model.JobID(c.FirstJobID)
	}
	m.Params.KillInvalidDep, m.Params.MaxDepDepth = c.dependRules()
	m.Params.GPUIdle, m.Params.LoginRights, m.Params.ReconfigFlags = c.GpuIdlePolicy, c.LoginRights, c.ReconfigFlags
	if c.JobSubmitProgram != "" {
		m.Params.SubmitHook = model.SubmitHook{Program: c.JobSubmitProgram, User: c.JobSubmitUser,
			LimitS: c.JobSubmitTimeoutS, Parallel: int32(c.JobSubmitParallel), Pass: c.JobSubmitFailure == "pass",
			Operator: c.JobSubmitRights == "operator"}
	}
	switch c.QueryRateLimit {
	case 0:
		m.Params.QueryRows = -1
	case DefaultQueryRate: // as in a configuration of before
	default:
		m.Params.QueryRows = int32(c.QueryRateLimit)
	}
	m.Params.Certs.Logins = c.LoginHosts
	if c.CertificateLifetimeS != model.DefaultCertLifeS { // as in a configuration of before
		m.Params.Certs.LifeS = c.CertificateLifetimeS
	}
	m.Params.Power = c.Power
	m.Params.Power.ResumeTimeoutS = c.ResumeTimeoutS
	m.Params.JobEvents = model.JobEvents{Program: c.JobEventProgram, Kinds: c.JobEventTypes, LimitS: c.JobEventTimeoutS,
		Parallel: int32(c.JobEventParallel)}
	m.Params.AlertProgram, m.Params.GPUSelect = c.AlertProgram, c.gpuSelect()
	m.Params.Ship, m.Params.Alerts = c.Resend, c.Alerts
	if m.Params.Ship.MaxWaiting == 0 {
		m.Params.Ship.MaxWaiting = max(leastDBDMsgs, 2*c.MaxJobCount+4*int64(len(c.Nodes)))
	}
	m.Params.Preempt.Youngest = c.Scheduler.PreemptYoungest || c.Preempt.Youngest
	m.Params.Preempt.Strict = c.Scheduler.PreemptStrict || c.Preempt.Strict
	c.placement(m)
	for _, s := range c.NodeSets {
		m.Sets = append(m.Sets, model.NodeSet{Name: s.Name, Feature: s.Feature, Nodes: s.Nodes})
	}
	future := map[string]bool{}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.State == model.FutureText {
			future[n.Name] = true
			m.Future = append(m.Future, c.nodeModel(n))
		} else {
			m.Nodes = append(m.Nodes, c.nodeModel(n))
		}
	}
	index := c.index()
	for i := range c.Partitions {
		m.Partitions = append(m.Partitions, c.partitionModel(&c.Partitions[i], future, index))
	}
	return m
}

// NodeRules gives the rules for what nodes, and the controller for them, do around jobs.
func (c *Config) NodeRules() model.NodeRules {
	flag := func(word string) bool { return slices.Contains(c.PrologFlags, word) }
	prologS, epilogS := c.programTimeouts()
	return model.NodeRules{
		Prolog: c.Prolog, Epilog: c.Epilog, PrologTimeoutS: prologS, EpilogTimeoutS: epilogS,
		Serial: flag("Serial"), NoHold: flag("NoHold"), Contain: true, ForceRequeue: flag("ForceRequeueOnFail"),
		NoHoldOnFail: c.Scheduler.NoHoldOnPrologErr, CtldProlog: c.PrologSlurmctld, CtldEpilog: c.EpilogSlurmctld,
		UnkillableS: c.UnkillableStepTimeoutS, UnkillableProgram: c.UnkillableStepProgram, BatchStartS: c.BatchStartTimeoutS,
		HealthProgram: c.HealthCheckProgram, HealthIntervalS: c.HealthCheckIntervalS, HealthStates: c.HealthCheckNodeState,
		LaunchRetries: int32(c.LaunchRetries), LaunchBackoffS: c.LaunchBackoffS, LaunchDrain: int32(c.LaunchFailuresToDrain),
		GPUBind: c.DefaultGpuBind, TaskProlog: c.TaskProlog, TaskEpilog: c.TaskEpilog, MaxSteps: c.MaxStepCount,
		KillBad: c.KillOnBadExit, WaitS: c.WaitTimeS, SampleS: c.sampleS(), KillWaitS: c.KillWaitS,
		HeartbeatS: c.NodeHeartbeatIntervalS, GPUSampleS: c.GpuSampleIntervalS, GPURecover: c.GpuRecoverProgram,
		GPUForeign: c.GpuForeignUsePolicy, GPUForeignPct: c.GpuForeignUsePct, GPUByUUID: c.GpuEnvStyle == "uuid",
		MIGProgram: c.MigProgram, Reboot: c.RebootProgram, RebootS: c.ResumeTimeoutS, GresHelper: c.GresHelper,
		GresHelperS: c.GresHelperTimeoutS, Uninherited: c.uninherited(), AppendFiles: c.JobFileAppend,
		InJob: flag("RunInJob"), HideJobs: slices.Contains(c.PrivateData, "jobs"),
		PrioProcess: model.PrioMode(c.PropagatePrioProcess), MaxTasks: int32(c.MaxTasksPerNode),
		CPUBind: c.cpuBind(), X11: flag("X11"), MPI: c.MpiDefault, FirstPort: c.MpiPorts[0], LastPort: c.MpiPorts[1],
	}
}

// noTimeout is how Slurm writes that prologs and epilogs have no time limit.
const noTimeout = 65534

// programTimeouts gives how long prologs and epilogs may run, seconds: PrologTimeout and EpilogTimeout, or else
// PrologEpilogTimeout, in whatever order they stand; 0: model.ProgramLimitS.
func (c *Config) programTimeouts() (prologS, epilogS int64) {
	of := func(own int64) int64 {
		if s := cmp.Or(own, c.PrologEpilogTimeoutS); s < noTimeout {
			return s
		}
		return 0
	}
	return of(c.PrologTimeoutS), of(c.EpilogTimeoutS)
}

// uninherited gives, as bits, the resource limits that PropagateResourceLimits leaves out or that
// PropagateResourceLimitsExcept names.
func (c *Config) uninherited() (bits uint32) {
	for num, name := range model.LimitNames() {
		named := func(list []string) bool { return slices.Contains(list, name) || slices.Contains(list, "ALL") }
		if c.PropagateLimitsExcept != nil && named(c.PropagateLimitsExcept) ||
			c.PropagateLimitsExcept == nil && !named(c.PropagateLimits) {
			bits |= 1 << num
		}
	}
	return bits
}

// sampleS is the time between samples of a job, 0 for none before its end.
func (c *Config) sampleS() int64 {
	if c.JobAcctGatherType == "jobacct_gather/none" {
		return 0
	}
	return c.SampleIntervalS
}

func (c *Config) nodeModel(n *NodeDef) *model.NodeDef {
	d := &model.NodeDef{
		Name: n.Name, Addr: n.Addr, CPUs: int32(n.CPUs), Boards: int32(n.Boards), Sockets: int32(n.Sockets),
		CoresPerSocket: int32(n.CoresPerSocket), ThreadsPerCore: int32(n.ThreadsPerCore), MemMiB: n.RealMemoryMiB,
		TmpMiB:   n.TmpDiskMiB,
		Features: n.Features, Weight: int32(n.Weight), Virtual: n.Virtual,
		Admin: n.Admin(), Reason: n.Reason, Cloud: n.State == model.CloudText, Kept: n.kept(),
		KeptMemMiB: n.MemSpecLimitMiB,
	}
	d.Topology, d.CPUBind, d.Future = n.Topology, n.CPUBind, n.State == model.FutureText
	d.External = n.State == model.ExternalText
	if n.Hostname != n.Name {
		d.Host = n.Hostname
	}
	next := map[string]int64{}
	for _, g := range n.Gres {
		count := min(g.Count, math.MaxInt32-next[g.Name])
		d.Gres = append(d.Gres, model.GresDef{Name: g.Name, Type: g.Type, First: int32(next[g.Name]), Count: int32(count),
			NoConsume: g.NoConsume, Explicit: model.IsRemote(g.Name, g.Type)})
		next[g.Name] += count
	}
	c.share(d)
	c.connect(d)
	return d
}

// kept are the CPUs that jobs can't get: whole cores. CoreSpecCount takes the last core of the last socket, then the
// last one of the socket before it, and so on round the sockets, as Slurm does.
func (n *NodeDef) kept() model.Bits {
	sockets, cores := max(1, n.Sockets), max(1, n.CoresPerSocket)
	threads := max(1, n.CPUs/(sockets*cores))
	var out model.Bits
	core := func(i int64) {
		for t := i * threads; t < (i+1)*threads && t < n.CPUs; t++ {
			out = out.With(int(t))
		}
	}
	for i := range n.CoreSpecCount {
		core((sockets-1-i%sockets)*cores + cores - 1 - i/sockets)
	}
	for _, cpu := range n.CPUSpecList {
		core(int64(cpu) / threads)
	}
	return out
}

// Admin gives the admin state from State of the node's line or of a DownNodes line.
func (n *NodeDef) Admin() model.NodeAdmin {
	switch n.State {
	case "DOWN":
		return model.NodeDown
	case "DRAIN", "FAIL", "FAILING":
		return model.NodeDrain
	}
	return model.NodeUp
}

var partStates = map[string]model.PartState{
	"UP": model.PartUp, "DOWN": model.PartDown, "DRAIN": model.PartDrain, "INACTIVE": model.PartInactive,
}

// index finds nodes by name.
func (c *Config) index() map[string]*NodeDef {
	index := make(map[string]*NodeDef, len(c.Nodes))
	for i := range c.Nodes {
		index[c.Nodes[i].Name] = &c.Nodes[i]
	}
	return index
}

func (c *Config) partitionModel(p *PartitionDef, future map[string]bool, index map[string]*NodeDef) *model.Partition {
	m := &model.Partition{
		Name: p.Name, Expr: p.NodesExpr, Default: p.Default, Hidden: p.Hidden, State: partStates[p.State],
		MaxTimeS: p.MaxTimeS,
		DefTimeS: p.DefaultTimeS, OverTimeS: p.OverTimeLimitS,
		MinNodes: int32(p.MinNodes), MaxNodes: int32(p.MaxNodes),
		DefMemPerCPU: p.Mem.DefPerCPUMiB, DefMemPerNode: p.Mem.DefPerNodeMiB, MaxMemPerCPU: p.Mem.MaxPerCPUMiB,
		MaxMemPerNode:  p.Mem.MaxPerNodeMiB,
		MaxCPUsPerNode: int32(p.MaxCPUsPerNode), PriorityTier: int32(p.PriorityTier),
		PriorityJobFactor: int32(p.PriorityJobFactor),
		AllowAccounts:     p.AllowAccounts, DenyAccounts: p.DenyAccounts, AllowGroups: p.AllowGroups,
		AllowQOS: p.AllowQOS, AllocNodes: p.AllocNodes, Alternate: p.Alternate,
		DenyQOS:  p.DenyQOS,
		RootOnly: p.RootOnly, DisableRoot: p.DisableRootJobs, ExclusiveUser: p.ExclusiveUser,
		OverSubscribe: p.OverSubscribe.String(),
		Billing:       p.TRESBillingWeights, QOS: p.QOS,
		GraceTimeS: p.GraceTimeS, PreemptMode: p.PreemptMode.Action,
		ShareMax: int32(p.OverSubscribe.Max), ShareForced: p.OverSubscribe.Mode == "FORCE",
	}
	m.GPUIdle, m.Power = p.GpuIdlePolicy, p.Power
	m.MaxCPUsPerSocket, m.CPUUnit = int32(p.MaxCPUsPerSocket), p.cpuUnit()
	m.Headroom, m.Topology, m.CPUBind = int32(p.ReservePercent), p.Topology, p.CPUBind
	m.Order = model.QueuePolicy(max(0, slices.Index(model.QueuePolicies(), p.QueuePolicy)))
	m.ReqResv, m.LLN, m.DefCPUPerGPU, m.DefMemPerGPU = p.ReqResv, p.LLN, int32(p.JobDefaults.DefCPUPerGPU),
		p.JobDefaults.DefMemPerGPUMiB
	for _, n := range p.Nodes {
		if !future[n] {
			m.Nodes = append(m.Nodes, n)
			if d := index[n]; d != nil {
				m.NodeCPUs, m.NodeSockets = max(m.NodeCPUs, int32(d.CPUs)), max(m.NodeSockets, int32(d.Sockets))
			}
		}
	}
	there := *p
	there.Nodes = m.Nodes
	m.Show = c.partitionKeyValues(&there, index)
	return m
}

// PartitionKeyValues returns a partition as `gcontrol show partition` prints
// it, in that order, from AllowGroups to TRES.
func (c *Config) PartitionKeyValues(p *PartitionDef) []model.KV {
	return c.partitionKeyValues(p, c.index())
}

func (c *Config) partitionKeyValues(p *PartitionDef, index map[string]*NodeDef) []model.KV {
	cpus, mem, tres := c.partitionTotals(p, index)
	var kvs keyValues
	kvs.addAccess(p)
	kvs.addLimits(p)
	kvs.addUse(p)
	kvs.add("State", p.State)
	kvs.add("TotalCPUs", showInt(cpus))
	kvs.add("TotalNodes", showInt(int64(len(p.Nodes))))
	kvs.add("SelectTypeParameters", orWord(p.SelectTypeParameters, "NONE"))
	kvs.add("JobDefaults", orNull(p.JobDefaults.String()))
	kvs.addMemory(&p.Mem)
	kvs.add("TRES", "cpu="+showInt(cpus)+",mem="+walltime.FormatMem(mem)+",node="+showInt(int64(len(p.Nodes)))+
		",billing="+showInt(cpus)+tres)
	if len(p.TRESBillingWeights) > 0 {
		kvs.add("TRESBillingWeights", showTRESWeights(p.TRESBillingWeights))
	}
	if p.QueuePolicy != "" {
		kvs.add("QueuePolicy", p.QueuePolicy)
	}
	if p.ReservePercent > 0 {
		kvs.add("ReservePercent", showReserve(p.ReservePercent))
	}
	if p.Topology != "" {
		kvs.add("Topology", p.Topology)
	}
	return kvs
}

// keyValues collects what a show command prints, in that order.
type keyValues []model.KV

func (kvs *keyValues) add(key, value string) { *kvs = append(*kvs, model.KV{Key: key, Value: value}) }

// addAccess adds the users, groups and accounts that may use a partition.
func (kvs *keyValues) addAccess(p *PartitionDef) {
	names := func(list []string) string {
		if list == nil {
			return "ALL"
		}
		return strings.Join(list, ",")
	}
	kvs.add("AllowGroups", names(p.AllowGroups))
	if p.DenyAccounts != nil && p.AllowAccounts == nil {
		kvs.add("DenyAccounts", names(p.DenyAccounts))
	} else {
		kvs.add("AllowAccounts", names(p.AllowAccounts))
	}
	if p.DenyQOS != nil && p.AllowQOS == nil {
		kvs.add("DenyQos", names(p.DenyQOS))
	} else {
		kvs.add("AllowQos", names(p.AllowQOS))
	}
	alloc := "ALL"
	if p.AllocNodes != nil {
		alloc = hostlist.Compress(p.AllocNodes)
	}
	kvs.add("AllocNodes", alloc)
	if p.Alternate != "" {
		kvs.add("Alternate", p.Alternate)
	}
	if p.CPUBind != "" {
		kvs.add("CpuBind", p.CPUBind)
	}
	kvs.add("Default", showYes(p.Default))
	kvs.add("QoS", orWord(p.QOS, "N/A"))
}

// addLimits adds the limits of a partition's jobs.
func (kvs *keyValues) addLimits(p *PartitionDef) {
	defTime := "NONE"
	if p.DefaultTimeS != model.NotSet {
		defTime = walltime.ElapsedLimit(p.DefaultTimeS, p.DefaultTimeS == model.Unlimited)
	}
	kvs.add("DefaultTime", defTime)
	kvs.add("DisableRootJobs", showYes(p.DisableRootJobs))
	kvs.add("ExclusiveUser", showYes(p.ExclusiveUser))
	kvs.add("GraceTime", showInt(p.GraceTimeS))
	kvs.add("Hidden", showYes(p.Hidden))
	kvs.add("MaxNodes", showCount(p.MaxNodes))
	kvs.add("MaxTime", walltime.ElapsedLimit(p.MaxTimeS, p.MaxTimeS == model.Unlimited))
	kvs.add("MinNodes", showInt(p.MinNodes))
	kvs.add("LLN", showYes(p.LLN))
	kvs.add("MaxCPUsPerNode", showCount(p.MaxCPUsPerNode))
	kvs.add("MaxCPUsPerSocket", showCount(p.MaxCPUsPerSocket))
}

// addUse adds the nodes of a partition, and how jobs get and lose them.
func (kvs *keyValues) addUse(p *PartitionDef) {
	kvs.add("Nodes", orWord(hostlist.CompressInOrder(p.Nodes), "(null)"))
	kvs.add("PriorityJobFactor", showInt(p.PriorityJobFactor))
	kvs.add("PriorityTier", showInt(p.PriorityTier))
	kvs.add("RootOnly", showYes(p.RootOnly))
	kvs.add("ReqResv", showYes(p.ReqResv))
	kvs.add("OverSubscribe", p.OverSubscribe.String())
	over := "NONE"
	if p.OverTimeLimitS > 0 {
		over = showOverTime(p.OverTimeLimitS)
	}
	kvs.add("OverTimeLimit", over)
	kvs.add("PreemptMode", p.PreemptMode.String())
	kvs.addPower(p.Power)
}

func (kvs *keyValues) addMemory(mem *MemLimits) {
	if mem.DefPerCPUMiB > 0 {
		kvs.add("DefMemPerCPU", showInt(mem.DefPerCPUMiB))
	} else {
		kvs.add("DefMemPerNode", showCount(mem.DefPerNodeMiB))
	}
	if mem.MaxPerCPUMiB > 0 {
		kvs.add("MaxMemPerCPU", showInt(mem.MaxPerCPUMiB))
	} else {
		kvs.add("MaxMemPerNode", showCount(mem.MaxPerNodeMiB))
	}
}

func showInt(n int64) string { return strconv.FormatInt(n, 10) }

// showCount shows a limit; 0 means none.
func showCount(n int64) string {
	if n == 0 || n == model.Unlimited {
		return "UNLIMITED"
	}
	return showInt(n)
}

func showYes(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

func orWord(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// partitionTotals adds up the nodes of a partition. tres has the resources that
// AccountingStorageTRES names, such as ",gres/gpu=16".
func (c *Config) partitionTotals(p *PartitionDef, index map[string]*NodeDef) (cpus, memMiB int64, tres string) {
	track := slices.Clone(c.AccountingStorageTRES)
	if gpus := model.GresTRES("gpu", ""); !slices.Contains(track, gpus) { // jobs and nodes have them always
		track = append(track, gpus)
	}
	gres := make([]int64, len(track))
	for _, name := range p.Nodes {
		n := index[name]
		if n == nil {
			continue // not of this configuration
		}
		cpus += n.CPUs
		memMiB += n.RealMemoryMiB
		for j, t := range track {
			name, typ, _ := model.TRESGres(t)
			for _, g := range n.Gres {
				if g.Name == name && (typ == "" || typ == g.Type) {
					gres[j] += g.Count
				}
			}
		}
	}
	for j, t := range track {
		if gres[j] > 0 {
			tres += "," + t + "=" + strconv.FormatInt(gres[j], 10)
		}
	}
	return cpus, memMiB, tres
}
