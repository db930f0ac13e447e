package ctld

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/blob"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// Priorities without the multifactor plugin: all jobs start equal, nice moves a job, age breaks ties.
const (
	basePriority  = 1_000_000
	maxPriority   = 1<<32 - 2
	maxArgs       = 1024
	maxRequestID  = 64
	maxGroups     = 65536
	maxNodesNamed = 65536
)

// submit validates a submission, refuses a job that can never run, and puts the job into the log. It returns the job's
// number only when the job is in the log.
func (c *Controller) submit(ctx context.Context, who *caller,
	rq *proto.SubmitRequest) (*proto.SubmitReply, error) {
	v := c.machine.View()
	who, rq, said, err := c.hookSubmit(ctx, v, who, rq)
	if err != nil {
		return nil, err
	}
	if len(rq.Rest) > 0 {
		reply, err := c.submitHet(ctx, v, who, rq)
		if err == nil {
			reply.Notes = append(said, reply.Notes...)
		}
		return reply, err
	}
	cmd, reply, err := c.prepare(v, *who, rq)
	if err == nil {
		reply.Notes = append(said, reply.Notes...)
	}
	if again := taken(v, who, rq, reply, err); again != nil {
		return again, nil
	}
	if err != nil {
		return nil, err
	}
	if rq.TestOnly {
		return c.testOnly(ctx, v, cmd.Spec, reply)
	}
	script, env := cmd.Script, cmd.Env
	withoutContent(v, cmd)
	res, err := c.propose(ctx, cmd)
	if err == nil && res.Refusal == state.ContentMissing { // the state has dropped the content meanwhile
		cmd.Script, cmd.Env = script, env
		res, err = c.propose(ctx, cmd)
	}
	if err == nil {
		err = refusedBy(v, cmd.Spec, res)
	}
	if err != nil {
		return nil, err
	}
	reply.Job = res.Job
	return reply, nil
}

// prepare makes the command for a submission that is valid and can run, and the beginning of its answer.
func (c *Controller) prepare(v *state.View, who caller, rq *proto.SubmitRequest) (*state.Submit,
	*proto.SubmitReply, error) {
	if v.Config().Cluster == "" {
		return nil, nil, refuse(proto.CodeBusy, "the cluster has no configuration yet; try again in a moment")
	}
	if rq.Spec == nil || len(rq.RequestID) > maxRequestID {
		return nil, nil, refuse(proto.CodeBadRequest,
			"the submission is malformed: no job description, or a request id over %d bytes", maxRequestID)
	}
	if rq.Spec.Cron != nil {
		return nil, nil, refuse(proto.CodeBadRequest, "jobs that come back are those of a crontab: gcrontab installs one")
	}
	sp := *rq.Spec
	sp.UID, sp.GID, sp.Groups = who.UID, who.GID, who.Groups
	sp.User, sp.Group, sp.Host, sp.From, sp.Via = who.User, who.Group, who.Host, who.from, who.via
	sp.Features = model.FeatureText(sp.Features)
	if err := sp.CheckUser(c.opts.UID); err != nil {
		return nil, nil, refuse(proto.CodeAccess, "the cluster takes no such job: %v", err)
	}
	var passed []string
	if rq.PassUnknown && len(sp.Deps) <= state.MaxDeps { // more are refused below
		passed = c.passUnknown(v, &who, &sp)
	}
	passed = append(passed, c.unrank(&who, &sp)...)
	if err := c.validate(v, &who, &sp, rq); err != nil {
		return nil, nil, err
	}
	siteDefaults(v.Config(), &sp)
	if err := addressMail(v, &sp); err != nil {
		return nil, nil, err
	}
	notes, err := c.place(v, &who, &sp)
	if err == nil {
		notes, err = c.autoGPUMem(v, &sp, notes)
	}
	if err == nil {
		err = mayUse(v, &sp)
	}
	if err == nil {
		err = fitTimes(v, c.now(), &sp)
	}
	var more []string
	if err == nil {
		more, err = chooseWCKey(v, &sp)
	}
	if err != nil {
		return nil, nil, err
	}
	notes = slices.Concat(passed, notes, more)
	if len(rq.Script) > 0 && !slices.ContainsFunc(sp.Partitions,
		func(name string) bool { return v.Partition(name).State != model.PartDown }) {
		notes = append(notes, fmt.Sprintf("partition %s is down: the job waits until that is over",
			strings.Join(sp.Partitions, ",")))
	}
	script, env := blob.Make(rq.Script), blob.Make(rq.Env)
	sp.Script, sp.Env = script.Key, env.Key
	if err := fitsLength(&sp); err != nil { // with what the checks have chosen
		return nil, nil, err
	}
	cmd := &state.Submit{RequestID: requestKey(who.UID, rq.RequestID), Spec: &sp, Script: script, Env: env,
		Priority: priorityOf(&sp, 0)}
	if sp.HoldReq {
		cmd.Hold = model.HeldByUser
	}
	reply := accepted(v, 0)
	reply.Notes = notes
	return cmd, reply, nil
}

// taken answers a submission that was taken when it came before: what would be refused by now, as err says, is no
// answer to it. nil: it is a new one.
func taken(v *state.View, who *caller, rq *proto.SubmitRequest, now *proto.SubmitReply, err error) *proto.SubmitReply {
	id := v.Request(requestKey(who.UID, rq.RequestID))
	if id == 0 {
		return nil
	}
	again := accepted(v, id)
	if err == nil {
		again.Notes = now.Notes
	}
	return again
}

// accepted is the answer to a submission; id is 0 while its number is not known.
func accepted(v *state.View, id model.JobID) *proto.SubmitReply {
	return &proto.SubmitReply{Job: id, Cluster: v.Config().Cluster, Shell: v.Config().Params.ShellStep}
}

// withoutContent removes content that the state already has from a command.
func withoutContent(v *state.View, cmd *state.Submit) {
	if v.HasBlob(cmd.Script.Key) {
		cmd.Script.Data = nil
	}
	if v.HasBlob(cmd.Env.Key) {
		cmd.Env.Data = nil
	}
}

// requestKey makes request ids per user: no user gets another user's job by guessing an id.
func requestKey(uid uint32, id string) string {
	if id == "" {
		return ""
	}
	return strconv.FormatUint(uint64(uid), 36) + ":" + id
}

func priorityOf(sp *model.Spec, site int32) uint32 {
	if sp.PrioReq != 0 {
		return sp.PrioReq
	}
	p := int64(basePriority) - int64(sp.Nice) + int64(site)
	return uint32(min(max(p, 1), maxPriority))
}

// validate checks everything that does not depend on the cluster's nodes.
func (c *Controller) validate(v *state.View, who *caller, sp *model.Spec, rq *proto.SubmitRequest) error {
	params := &v.Config().Params
	if err := bounded(sp); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{{"--job-name", sp.Name}, {"--account", sp.Account}, {"--qos", sp.QOS},
		{"--comment", sp.Comment}, {"--chdir", sp.WorkDir}, {"--output", sp.StdOut}, {"--error", sp.StdErr},
		{"--input", sp.StdIn}, {"--constraint", sp.Features}, {"the script's path", sp.Command}} {
		if len(f.value) > proto.MaxFieldBytes {
			return refuse(proto.CodeBadRequest, "%s is %d bytes long, the limit is %d", f.name, len(f.value),
				proto.MaxFieldBytes)
		}
	}
	switch script := rq.Script; {
	case rq.TestOnly && len(script) == 0:
	case len(script) == 0:
		return refuse(proto.CodeScript, "Batch script is empty!")
	case params.MaxScript > 0 && len(script) > int(params.MaxScript):
		return refuse(proto.CodeScript, "the batch script is %d bytes long, the limit is %d "+
			"(SchedulerParameters=max_script_size=...); read large data from a file instead", len(script), params.MaxScript)
	case !bytes.HasPrefix(script, []byte("#!")):
		return refuse(proto.CodeScript,
			"This does not look like a batch script. The first line must start with #! followed by the path to an interpreter.")
	case bytes.IndexByte(script, 0) >= 0:
		return refuse(proto.CodeScript, "the batch script contains a NUL byte: it is a binary, not a script; start the "+
			"program from a script or with --wrap")
	}
	if most := params.MaxStored; most > 0 && who.UID != 0 && v.Stored(who.UID) >= most {
		return refuse(proto.CodePolicy, "your jobs' scripts and environments take %d bytes already, the limit is %d "+
			"(SchedulerParameters=max_user_scripts_size=...): wait until some have ended, pass less with --export, or read "+
			"large data from files", v.Stored(who.UID), most)
	}
	if len(rq.Env) > proto.MaxEnvBytes {
		return refuse(proto.CodeBadRequest, "the environment is %d bytes long, the limit is %d; pass less with --export",
			len(rq.Env), proto.MaxEnvBytes)
	}
	if len(sp.Args) > maxArgs || len(sp.ReqNodes) > maxNodesNamed || len(sp.ExcNodes) > maxNodesNamed ||
		len(sp.Groups) > maxGroups {
		return refuse(proto.CodeBadRequest, "more than %d arguments, %d named nodes or %d groups", maxArgs,
			maxNodesNamed, maxGroups)
	}
	if !strings.HasPrefix(sp.WorkDir, "/") {
		return refuse(proto.CodeBadRequest, "the working directory '%s' is not an absolute path; give one with --chdir",
			sp.WorkDir)
	}
	if err := validNeeds(sp); err != nil {
		return err
	}
	if err := sp.Extra().Container.Check(); err != nil {
		return refuse(proto.CodeBadRequest, "%v", err)
	}
	if sp.UID == 0 && sp.Extra().Container != nil {
		return refuse(proto.CodeAccess, "root's jobs run in no containers: submit it as a user, or for one with --uid")
	}
	if err := model.CheckLimits(sp.Limits); err != nil {
		return refuse(proto.CodeBadRequest, "%v", err)
	}
	if err := c.mayRank(who, sp); err != nil {
		return err
	}
	if len(sp.Tasklist) > 0 {
		if sp.Tasklist.Max() >= params.MaxArraySize || sp.Tasklist.Min() < 0 {
			return refuse(proto.CodeArray, "--array=%s: indices go from 0 to %d (MaxArraySize=%d)", sp.ArrayText,
				params.MaxArraySize-1, params.MaxArraySize)
		}
		if n := sp.Tasklist.Count(); params.MaxArrayTasks > 0 && n > int(params.MaxArrayTasks) {
			return refuse(proto.CodeArray,
				"--array=%s: %d tasks are more than one array may have (max_array_tasks=%d); submit several", sp.ArrayText, n,
				params.MaxArrayTasks)
		}
	}
	if len(sp.Deps) > state.MaxDeps {
		return refuse(proto.CodeDependency, "--dependency names %d jobs, the limit is %d", len(sp.Deps), state.MaxDeps)
	}
	return c.validDeps(v, who, sp)
}

// passUnknown leaves out dependencies on jobs that nobody knows, as Slurm does, and says so.
func (c *Controller) passUnknown(v *state.View, who *caller, sp *model.Spec) (notes []string) {
	sees := c.sees(v, who)
	var known, unknown []model.Dep
	for _, d := range sp.Deps {
		if found := resolve(v, model.JobRef{Job: d.Job, Task: model.NoTask}); d.Job != 0 && d.Kind != model.DepExpand &&
			(len(found) == 0 || sees != nil && !sees.job(found[0].Spec)) {
			unknown = append(unknown, d)
		} else {
			known = append(known, d)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	note := "--dependency: unknown jobs are not waited for: "
	if sp.DepAny { // one that is over is enough
		known, note = nil, "--dependency: nothing is waited for, as unknown jobs are over: "
	}
	sp.Deps, sp.DepText = known, model.DepText(known, sp.DepAny)
	return []string{note + model.DepText(unknown[:min(len(unknown), maxUnknown)], sp.DepAny)}
}

// maxUnknown is how many unknown jobs a note names.
const maxUnknown = 10

// validDeps refuses dependencies that can't be.
func (c *Controller) validDeps(v *state.View, who *caller, sp *model.Spec) error {
	sp.Deps = noteArrays(v, sp.Deps)
	for _, d := range sp.Deps {
		if d.Failed || d.Kind == 0 || d.Kind > model.DepExpand {
			return refuse(proto.CodeDependency, "--dependency=%s is malformed", sp.DepText)
		}
		found := resolve(v, model.JobRef{Job: d.Job, Task: model.NoTask})
		if d.Job != 0 && (len(found) == 0 || !c.sees(v, who).job(found[0].Spec)) {
			return refuse(proto.CodeDependency, "--dependency=%s: job %d is unknown; see gqueue for the jobs that are known",
				sp.DepText, d.Job)
		}
		if d.Job != 0 && d.Task != model.NoTask && v.Array(d.Job) == nil {
			return refuse(proto.CodeDependency, "--dependency=%s: job %d is not an array, so it has no task %d", sp.DepText,
				d.Job, d.Task)
		}
		if d.Kind == model.DepExpand {
			if err := expands(found, who, sp); err != nil {
				return err
			}
		}
	}
	return nil
}

// siteDefaults gives a job what SelectTypeParameters has for jobs that say nothing.
func siteDefaults(cfg *model.Config, sp *model.Spec) {
	more := sp.Extra()
	hint := more.Bind != nil && more.Bind.Hint == "multithread"
	one := cfg.Params.OneTask && more.TasksPerCore == 0 && !sp.Overcommit && !hint
	bind := cfg.Params.BindGres && more.GresBind == model.BindPreferred &&
		(len(sp.Gres) > 0 || len(more.GPUsPerSocket) > 0)
	if !one && !bind {
		return
	}
	if one {
		more.TasksPerCore = 1
	}
	if bind {
		more.GresBind = model.BindEnforced
	}
	sp.More = &more
}

// noteArrays notes which of the jobs that others wait for are arrays.
func noteArrays(v *state.View, deps []model.Dep) []model.Dep {
	deps = slices.Clone(deps) // they are the request's
	for i := range deps {
		deps[i].Array = v.Array(deps[i].Job) != nil
	}
	return deps
}

// unrank takes away a priority that the caller may not set, as Slurm does, and says so.
func (c *Controller) unrank(who *caller, sp *model.Spec) []string {
	if sp.PrioReq == 0 || who.ranked || c.operator(who) {
		return nil
	}
	sp.PrioReq = 0
	return []string{"--priority has no effect: it is for operators"}
}

// mayRank refuses a negative nice value, or a reboot, that the caller has no right to.
func (c *Controller) mayRank(who *caller, sp *model.Spec) error {
	if sp.Nice < 0 && !who.ranked && !c.operator(who) {
		return refuse(proto.CodeAccess, "a negative --nice is for operators")
	}
	if sp.Extra().Reboot {
		return c.mayReboot(who.ranked || c.operator(who))
	}
	return nil
}

// validTasks refuses ranges that no command could have parsed, to protect the state.
func validTasks(set model.TaskSet) error {
	if len(set) > model.MaxTaskRanges {
		return fmt.Errorf("more than %d ranges", model.MaxTaskRanges)
	}
	last := int32(-1)
	for _, r := range set {
		if r.Step < 1 || r.Lo < 0 || r.Hi < r.Lo || r.Lo <= last {
			return fmt.Errorf("the ranges are not ascending")
		}
		last = r.Hi
	}
	return nil
}

// place fills in partition, account and QOS, and refuses a job that none of its partitions could ever run.
func (c *Controller) place(v *state.View, who *caller, sp *model.Spec) ([]string, error) {
	cfg := v.Config()
	if sp.Account = accountName(v, sp.Account); sp.Account == "" {
		sp.Account = defaultAccount(v, sp.User)
	}
	if err := knownAccount(v, sp); err != nil {
		return nil, err
	}
	if err := c.chooseQOS(v, sp); err != nil {
		return nil, err
	}
	if len(sp.Partitions) == 0 {
		for _, p := range cfg.Partitions {
			if p.Default {
				sp.Partitions = []string{p.Name}
			}
		}
		if len(sp.Partitions) == 0 {
			return nil, refuse(proto.CodeInvalidPartition,
				"no partition is the default (Default=YES); give one with --partition")
		}
	}
	for _, name := range append(append([]string(nil), sp.ReqNodes...), sp.ExcNodes...) {
		if v.Node(name) == nil {
			return nil, refuse(proto.CodeInvalidNode, "node %s is not defined; see ginfo -N", name)
		}
	}
	if err := shareGPUs(v, sp); err != nil {
		return nil, err
	}
	for _, g := range sp.Gres {
		if err := knownGres(cfg, g); err != nil {
			return nil, err
		}
	}
	if m := sp.Extra(); m.Switches > 0 && (m.SwitchWaitS == model.NotSet || m.SwitchWaitS > cfg.Params.SwitchWaitS) {
		m.SwitchWaitS = cfg.Params.SwitchWaitS // max_switch_wait
		sp.More = &m
	}
	var firstErr error
	notes := alternates(v, sp)
	possible := sp.Partitions[:0:0]
	for _, name := range sp.Partitions {
		if err := c.allowed(v, who, sp, name); err != nil {
			if firstErr == nil {
				firstErr = err
			}
			if cfg.Params.EnforceLimits == "ALL" || v.Partition(name) == nil {
				return nil, err
			}
			continue
		}
		possible = append(possible, name)
	}
	if len(possible) == 0 {
		return nil, firstErr
	}
	if len(possible) < len(sp.Partitions) {
		notes = append(notes, fmt.Sprintf("the job can't run in every partition asked for (%s); it waits for: %s", firstErr,
			strings.Join(possible, ",")))
	}
	sp.Partitions = possible
	for _, name := range possible {
		if err := partLimit(v, sp, v.Partition(name)); err != nil {
			notes = append(notes, fmt.Sprintf("%s: the job waits until that changes (EnforcePartLimits=NO)", err))
		}
	}
	switch {
	case sp.NoRequeue:
		sp.Requeue = false
	case !sp.Requeue:
		sp.Requeue = cfg.Params.JobRequeue
	}
	return notes, nil
}

func knownGres(cfg *model.Config, g model.GresReq) error {
	var types []string
	named := false
	for _, n := range cfg.Nodes {
		for _, d := range n.Gres {
			if d.Name != g.Name {
				continue
			}
			named = true
			if model.TypeFits(g.Name, g.Type, d.Type) {
				return nil
			}
			if !has(types, d.Type) {
				types = append(types, d.Type)
			}
		}
	}
	if named && g.Type == "" {
		return refuse(proto.CodeInvalidGres, "%s: all that are here are remote, and go only to jobs that ask for them: "+
			"%[1]s:%s:N, or --gpus=%[2]s:N", g.Name, model.RemoteType)
	}
	if named {
		return refuse(proto.CodeInvalidGres, "%s:%s: the types of %s here are %s", g.Name, g.Type, g.Name,
			strings.Join(types, ", "))
	}
	return refuse(proto.CodeInvalidGres, "%s: no node has it; see ginfo -o '%%n %%G'", g.Name)
}

// allowed gives the reason why a job may not, or can never, run in a partition.
func (c *Controller) allowed(v *state.View, who *caller, sp *model.Spec, name string) error {
	cfg := v.Config()
	p := v.Partition(name)
	if p == nil {
		var names []string
		for _, q := range cfg.Partitions {
			names = append(names, q.Name)
		}
		return refuse(proto.CodeInvalidPartition, "%s: the partitions are %s", name, strings.Join(names, ", "))
	}
	root := who.UID == 0
	switch {
	case p.Closed():
		return refuse(proto.CodePartitionDown, "partition %s is in state %s and takes no jobs", name, p.State)
	case p.RootOnly && !root:
		return refuse(proto.CodeAccess, "partition %s is for root only (RootOnly=YES)", name)
	case p.DisableRoot && root:
		return refuse(proto.CodeAccess, "partition %s takes no jobs from root (DisableRootJobs=YES)", name)
	case len(p.AllocNodes) > 0 && !onHost(sp.Host, p.AllocNodes):
		return refuse(proto.CodeAccess, "partition %s takes no jobs that are submitted on %s, only on %s (AllocNodes)", name,
			sp.Host, c.hostlist(p.AllocNodes))
	case c.outside(who, p):
		return refuse(proto.CodeAccess, "partition %s is for the groups %s", name, strings.Join(p.AllowGroups, ", "))
	}
	if sched.Barred(v, sp, p) == model.ReasonReservation {
		return refuse(proto.CodeAccess,
			"partition %s takes jobs in reservations only (ReqResv=YES); name one with --reservation", name)
	}
	over := partLimit(v, sp, p)
	if over != nil && cfg.Params.EnforceLimits != "NO" {
		return over
	}
	if r := sched.Alone(v, sp, p); r != model.ReasonNone {
		return refuse(proto.CodePolicy, "%s: the job breaks a limit of QOS %s, of partition %s's QOS or of account %s by "+
			"itself, and the QOS refuses such jobs (DenyOnLimit); see gacctmgr show qos", r, sp.QOS, name, sp.Account)
	}
	switch why, _ := sched.Possible(v, sp, p); {
	case why == sched.CanRun, over != nil && (why == sched.PartitionNodes || why == sched.OverMemLimit):
	default:
		return misfit(v, sp, p, why)
	}
	return beyond(v, sp, p)
}

// partLimit refuses what a partition's own settings bar or limit: accounts, QOS, time, nodes and memory. Without
// EnforcePartLimits such a job waits.
func partLimit(v *state.View, sp *model.Spec, p *model.Partition) error {
	switch sched.Barred(v, sp, p) {
	case model.ReasonAccountNotAllowed:
		return refuse(proto.CodeInvalidAccount, "account %s may not use partition %s", sp.Account, p.Name)
	case model.ReasonQOSNotAllowed:
		return refuse(proto.CodeInvalidQOS, "QOS %s may not be used in partition %s", sp.QOS, p.Name)
	}
	limit := sp.LeastS(p.LimitS(sp))
	if p.MaxTimeS != model.NotSet && limit > sched.Lifted(v, sp.QOS, p).MaxTimeS {
		return refuse(proto.CodeTimeLimit, "--time is %s, partition %s allows %s",
			walltime.ElapsedLimit(limit, limit >= model.Unlimited), p.Name, walltime.Elapsed(p.MaxTimeS))
	}
	if why := sched.Outside(v, sp, p); why != sched.CanRun {
		return misfit(v, sp, p, why)
	}
	return nil
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s || x == "ALL" {
			return true
		}
	}
	return false
}
