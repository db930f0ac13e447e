package noded

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/outpath"
	"gbatch/internal/proto"
	"gbatch/noded/receive"
	"gbatch/noded/shim"
	"gbatch/noded/steplayout"
	"gbatch/noded/steprelay"
	"gbatch/noded/stepx11"
	"gbatch/noded/taskaround"
)

// stepmake.go makes what a step's tasks on this node need: the group, the environments, the bindings, and the orders to
// gshim. It runs on a worker and knows nothing of other steps.

// stepPlan is the data of a step for a worker.
type stepPlan struct {
	key   proto.Attempt
	facts *proto.Launch
	rec   *placedStep
	here  int // this node's part in rec.Nodes
	req   *proto.StepRequest
	files []proto.StepFile
	given [3][]*os.File  // for FileShared one, for FileEach one for each task
	het   *proto.StepHet // nil: the step is alone
	only  []int          // the local tasks to order: tasks that gshim doesn't know

	io     *proto.StepIO    // where the command is, of tasks that get pipes; nil: it passes its own files
	ends   []steprelay.Pipe // what the relay gets
	heard  []heardPipe      // what a process beside the tasks listens to
	pmi    *proto.StepIO    // where the command serves MPI programs; nil: they are not served
	mpi    []*os.File       // the ends of the tasks' connections for them, in the order of only
	x11    *proto.StepIO    // where the command takes connections to its display; nil: it gives none
	shows  *stepx11.Display // the tasks' display; nil: they have none
	relays []*shim.Launch   // processes beside the tasks
	space  string           // the job's own mount namespace; "": none
	fresh  []string         // files to be made, or emptied, before tasks that share them begin
	writes []taskOutput     // where they write to, if they have GPUs
}

func (p *stepPlan) empty(path string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.req.Dir, path)
	}
	if !slices.Contains(p.fresh, path) {
		p.fresh = append(p.fresh, path)
	}
}

// partOfJob gives the job's part of a node.
func (p *stepPlan) partOfJob(node string) (*model.NodeAlloc, error) {
	at := p.facts.Alloc.Place(node)
	if at < 0 {
		return nil, fmt.Errorf("job %d has given node %s up", p.key.Job, node)
	}
	return &p.facts.Alloc.Nodes[at], nil
}

// makeStep makes the orders for the tasks of p.only. lines are for the user's standard error.
func (n *Noded) makeStep(ctx context.Context, p *stepPlan) (orders []*shim.Launch, lines []string, err error) {
	part := &p.rec.Nodes[p.here]
	job, err := p.partOfJob(part.Node)
	if err != nil {
		return nil, nil, err
	}
	share := &model.NodeAlloc{Node: part.Node, CPUs: part.CPUs, MemMiB: part.MemMiB, Gres: part.Gres}
	n.sampler.stepComes(p.key)
	group, pin, err := n.groups.createStep(p.key, p.rec.ID, job, share, true)
	if err != nil {
		return nil, nil, fmt.Errorf("make the step's cgroup on node %s: %w", n.opts.Name, err)
	}
	if p.space, err = n.ownMounts(p.key); err != nil {
		return nil, nil, fmt.Errorf("on node %s: %w", n.opts.Name, err)
	}
	in, err := n.stepRoom(ctx, p, share)
	if err != nil {
		return nil, nil, fmt.Errorf("on node %s: %w", n.opts.Name, err)
	}
	e := n.jobEnv()
	var def *model.NodeDef
	if w := n.def.Load(); w != nil {
		e.Cluster, def = w.cluster, w.def
		e.Hidden = e.Units.HiddenOn(def)
	}
	if far := n.remoteOf(p.key, job); far != nil {
		e.Remotely(far)
	}
	s := n.shape()
	cpus, notes := steplayout.BindCPUs(&s, part, &p.req.Bind, &p.req.Need)
	gpus, more := steplayout.BindGPUs(part, &p.req.Bind, cpus, nearOf(def),
		e.Units != nil && e.Units.Relative[model.GPUName])
	for _, note := range append(notes, more...) {
		lines = append(lines, "note: "+note)
	}
	base := e.StepBase(p.facts, p.rec.ID, p.rec.Nodes, p.here, p.req, p.het)
	limits := n.limits(p.req.Limits, p.req.OwnLimits)
	spec := p.facts.Spec
	groups, nicely := n.given(spec.UID, spec.Groups), n.configured().PrioProcess
	if err := n.makeDisplay(p); err != nil {
		return nil, nil, err
	}
	defer p.closeDisplay()
	for _, local := range p.only {
		rank := int(part.Ranks[local])
		view := jobenv.TaskView{Rank: rank, Local: local, First: p.het.First()}
		o := &shim.Launch{Key: shim.Key{JobID: uint32(p.key.Job), Attempt: p.key.Attempt, Step: p.rec.ID, Task: int32(rank)},
			Path: p.req.Program, Argv: p.req.Argv, Dir: p.req.Dir, UID: spec.UID, GID: spec.GID, Groups: groups,
			Umask: p.req.Umask & 0o777, Limits: limits, Cgroup: group, CPUs: pin, Mounts: p.space,
			PIDVar: "SLURM_TASK_PID", AsRoot: spec.UID == 0} // mayLaunch has let the job in
		n.setProgram(o, p, rank)
		if local < len(cpus) {
			if on := n.groups.pinTo(cpus[local]); on != nil {
				o.CPUs = on
				for _, c := range on {
					view.CPUs = view.CPUs.With(c)
				}
			}
		}
		if local < len(gpus) {
			view.GPUs = gpus[local]
		}
		on := o.CPUs
		if on == nil {
			on = n.groups.pinTo(part.CPUs)
		}
		if o.Mem, err = bindMemory(&s, &p.req.Bind, local, on); err != nil {
			return nil, nil, fmt.Errorf("--mem-bind: %w", err)
		}
		o.Nice, o.Env = jobenv.Niceness(nicely, n.nice, spec.UID, e.StepTask(base, part, shownBind(p.req), &view))
		if p.rec.Ports != "" {
			o.Env = append(o.Env, "SLURM_STEP_RESV_PORTS="+p.rec.Ports)
		}
		if err := p.setFiles(n, o, local, rank); err != nil {
			return nil, nil, err
		}
		if hasGPU(part.Gres) {
			n.noteOutputs(p, o)
		}
		if p.req.Torch {
			o.Env = jobenv.TorchTask(o.Env, p.rec.Nodes, p.here, &view, p.req.Master)
		}
		if p.pmi != nil {
			if err := p.connectTask(o, rank); err != nil {
				return nil, nil, err
			}
		}
		p.show(o)
		if err := n.wrap(o, p, in); err != nil {
			return nil, nil, err
		}
		orders = append(orders, o)
	}
	lines = append(lines, bindLines(p, orders, cpus, gpus)...)
	return orders, lines, n.makeBeside(p, orders)
}

// wrap puts a task into its container, and before its program those that run first.
func (n *Noded) wrap(o *shim.Launch, p *stepPlan, in *room) error {
	if err := n.moveIn(o, in); err != nil {
		return fmt.Errorf("on node %s: %w", n.opts.Name, err)
	}
	n.wrapTask(o, p)
	if p.pmi != nil && p.pmi.PMIx {
		if err := n.awaitVariables(o, p); err != nil {
			return err
		}
	}
	return o.Check()
}

// shownBind is the binding that the tasks' variables tell, which their grun takes over. That of an interactive step
// starts steps as galloc would.
func shownBind(rq *proto.StepRequest) *proto.StepBind {
	if rq.Interactive {
		return new(proto.StepBind)
	}
	return &rq.Bind
}

// values are the step's values for patterns in file names.
func (p *stepPlan) values(rank int) outpath.Values {
	l := p.facts
	v := outpath.Values{JobID: uint32(l.Job), JobName: l.Spec.Name, User: l.Spec.User, Node: p.rec.Nodes[p.here].Node,
		NodeRank: p.here,
		TaskRank: int(p.het.First()) + rank, Step: strconv.Itoa(int(p.rec.ID))}
	if l.Task != model.NoTask {
		v.ArrayJob, v.Task = uint32(l.ArrayID), uint32(l.Task)
	}
	return v
}

// path gives the file of a pattern.
func (p *stepPlan) path(pattern string, rank int) string {
	path := outpath.Expand(pattern, p.values(rank))
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.req.Dir, path)
	}
	return path
}

// setProgram says what a task runs.
func (n *Noded) setProgram(o *shim.Launch, p *stepPlan, rank int) {
	for _, m := range p.req.Multi {
		if m.Ranks.Has(int32(rank)) {
			o.Path, o.Argv = m.Program, rankArgs(m.Argv, rank, m.Ranks)
			break
		}
	}
	if p.req.Copied != "" {
		o.Path = p.path(p.req.Copied, rank)
		o.Argv = append([]string{o.Path}, o.Argv[1:]...)
	}
	if p.req.Receive != nil {
		n.receiveInto(o, p, rank)
	}
}

// receiveInto makes a task take in a file.
func (n *Noded) receiveInto(o *shim.Launch, p *stepPlan, rank int) {
	r := p.req.Receive
	path := r.Path
	if r.Step != proto.StepNone {
		v := p.values(rank)
		v.Step = strconv.Itoa(int(r.Step))
		path = outpath.Expand(path, v)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.req.Dir, path)
	}
	order := receive.Order{Program: p.req.Name, Node: n.opts.Name, Path: path, Began: int64(p.rec.At), Size: r.Size,
		Mode: r.Mode, Force: r.Force, Keep: r.Keep, ATime: r.ATime, MTime: r.MTime}
	o.Path, o.Argv, o.Dir = n.opts.Shim, order.Argv(n.opts.Shim), "/"
}

// setFiles gives a task its standard files.
func (p *stepPlan) setFiles(n *Noded, o *shim.Launch, local, rank int) error {
	v := p.values(rank)
	if o.Terminal = p.req.Terminal != nil && rank == 0; o.Terminal && p.io != nil {
		return p.terminal(o, rank)
	}
	for i, f := range p.files {
		path := ""
		if streams := f.Mode == proto.FileShared || f.Mode == proto.FileEach ||
			f.Mode == proto.FileOne && int(f.Task) == rank; p.io != nil && streams {
			if err := p.pipes(o, i, rank); err != nil {
				return err
			}
			continue
		}
		switch f.Mode {
		case proto.FilePath:
			if f.Label {
				if err := p.labelled(n, o, i, rank); err != nil {
					return err
				}
				continue
			}
			path = outpath.Expand(f.Pattern, v)
			o.Append = o.Append || f.Append
			// the tasks here share it
			if i > 0 && !f.Append && len(p.rec.Nodes[p.here].Ranks) > 1 && !outpath.PerTask(f.Pattern) {
				if o.Append = true; local == 0 {
					p.empty(path)
				}
			}
		case proto.FileShared:
			if len(p.given[i]) > 0 {
				o.Passed[i] = p.given[i][0]
			}
		case proto.FileEach:
			if local < len(p.given[i]) {
				o.Passed[i] = p.given[i][local]
			}
		case proto.FileOne:
			if int(f.Task) == rank && len(p.given[i]) > 0 {
				o.Passed[i] = p.given[i][0]
			}
		}
		if i > 0 && o.Passed[i] != nil && hasGPU(p.rec.Nodes[p.here].Gres) {
			if err := p.hear(n, o, i); err != nil {
				return err
			}
		}
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(p.req.Dir, path)
		}
		switch i {
		case 0:
			o.Stdin = path
		case 1:
			o.Stdout = path
		case 2:
			o.Stderr = path
		}
	}
	if o.Append { // for both streams, as gshim has it: a file of the task alone is emptied before, too
		for i, f := range p.files {
			if i > 0 && f.Mode == proto.FilePath && !f.Append && !f.Label && outpath.PerTask(f.Pattern) {
				p.empty(outpath.Expand(f.Pattern, v))
			}
		}
	}
	return nil
}

// rankArgs puts a task's number into the arguments of --multi-prog: %t is its rank, %o its place among those of its
// line.
func rankArgs(argv []string, rank int, ranks model.TaskSet) []string {
	offset := 0
	for _, r := range ranks {
		if int(r.Lo) < rank {
			offset += (min(int(r.Hi), rank-1)-int(r.Lo))/int(r.Step) + 1
		}
	}
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = strings.NewReplacer("%t", strconv.Itoa(rank), "%o", strconv.Itoa(offset)).Replace(a)
	}
	return out
}

// nearOf gives the CPUs of a node that are near a GPU.
func nearOf(def *model.NodeDef) func(gpu int) model.Bits {
	return func(g int) model.Bits {
		if def == nil {
			return nil
		}
		for i := range def.Gres {
			d := &def.Gres[i]
			if k := g - int(d.First); d.Name == model.GPUName && k >= 0 && k < len(d.Near) {
				return d.Near[k]
			}
		}
		return nil
	}
}

// stepdError begins a line of Slurm's daemon in a step's standard error.
const stepdError = "slurmstepd: error: "

// failed is the end of a task whose files or program can't be opened. What was never ordered has no text.
func (t *stepTask) failed() model.Exit {
	ev := t.ended
	switch {
	case ev.Stage == shim.StageOrder:
		return model.Exit{Code: 1}
	case ev.Stage != shim.StageExec:
		return model.Exit{Code: 1, Text: ev.Text}
	}
	code := int32(ev.Errno & 0xff)
	if t.order == nil || len(t.order.Argv) == 0 || strings.Contains(ev.Text, "interpreter") || code == 0 {
		return model.Exit{Code: max(code, 1), Text: "execve(): " + ev.Text}
	}
	why := ev.Errno.Error()
	return model.Exit{Code: code,
		Text: fmt.Sprintf("execve(): %s: %s", t.order.Argv[0], strings.ToUpper(why[:1])+why[1:])}
}

// shape is the layout of this node's CPUs.
func (n *Noded) shape() steplayout.Shape {
	h := &n.inv.Hw
	return steplayout.Shape{Sockets: int(h.Sockets), Cores: int(h.Cores), Threads: int(h.Threads), NUMA: n.inv.NUMA}
}

// taskWrapper is the shell program around a task that has prologs or epilogs: those of the configuration and the
// command's own, "" for none. What a prolog prints as export, unset and print is obeyed. A task with epilogs is gshim's
// to run (package taskaround), but in a container that does not have that program: one of an OCI runtime.
const taskWrapper = `
obey() {
	while IFS= read -r line; do
		case $line in
		"export "*=*) export "${line#export }" ;;
		"unset "*) unset "${line#unset }" ;;
		"print "*) printf '%s\n' "${line#print }" ;;
		esac
	done
}
for p in "$2" "$3"; do
	[ -z "$p" ] && continue
	said=$(SLURM_SCRIPT_CONTEXT=prolog_task "$p") || { echo "slurmstepd: error: TaskProlog $p failed" >&2; exit 1; }
	obey <<EOF
$said
EOF
done
gshim=$1 e1=$4 e2=$5
shift 5
[ -z "$SLURM_PROLOG_CPU_MASK" ] || "$gshim" ` + taskaround.MaskWord + ` "$SLURM_PROLOG_CPU_MASK"
# As without a shell, a program that can't be run has the error's number as its exit code.
rc= bad=
case $1 in
*/*)
	if [ ! -e "$1" ]; then
		bad='No such file or directory' rc=2
	elif [ ! -f "$1" ] || [ ! -x "$1" ]; then
		bad='Permission denied' rc=13
	fi
	;;
*) command -v "$1" >/dev/null 2>&1 || { bad="No such file or directory" rc=2; } ;;
esac
[ -z "$bad" ] || echo "slurmstepd: error: execve(): $1: $bad" >&2
[ -z "$e1$e2$bad" ] && exec "$@"
[ -z "$e1$e2" ] && exit $rc
[ -x "$gshim" ] && exec "$gshim" ` + taskaround.Word + ` "$e2" "$e1" "$rc" "$@"
trap : TERM INT HUP USR1 USR2 QUIT ALRM
if [ -z "$bad" ]; then
	"$@"
	rc=$?
fi
told() { # a status as wait(2) has it
	[ "$2" -eq 0 ] || echo "slurmstepd: error: $1 failed status=$(($2 > 128 ? $2 - 128 : $2 * 256))" >&2
}
command -v timeout >/dev/null 2>&1 && limit='timeout -s KILL 5' || limit=
export SLURM_SCRIPT_CONTEXT=epilog_task
[ -z "$e2" ] || { $limit "$e2"; told TaskEpilog $?; }
[ -z "$e1" ] || { "$e1"; told --task-epilog $?; }
if [ $rc -gt 128 ] && [ $rc -le 192 ]; then
	trap - TERM INT HUP USR1 USR2 QUIT ALRM
	kill -$((rc - 128)) $$
fi
exit $rc
`

// wrapTask makes a shell run a task with its programs, as the task's user and in its group.
func (n *Noded) wrapTask(o *shim.Launch, p *stepPlan) {
	own := func(path string) string {
		if path == "none" {
			return ""
		}
		return path
	}
	if p.req.Receive != nil {
		return // it is no task of the job
	}
	n.wrapProgram(o, own(p.req.Prolog), own(p.req.Epilog))
}

// wrapProgram makes a shell run a program with the site's prolog and epilog of tasks, and with its own. A batch script
// has the site's too.
func (n *Noded) wrapProgram(o *shim.Launch, prolog, epilog string) {
	r := n.configured()
	prologs, epilogs := [2]string{r.TaskProlog, prolog}, [2]string{r.TaskEpilog, epilog}
	if prologs == [2]string{} && epilogs == [2]string{} {
		return
	}
	o.Argv = append([]string{"/bin/sh", "-c", taskWrapper, "/bin/sh", n.opts.Shim, prologs[0], prologs[1],
		epilogs[0], epilogs[1], o.Path}, o.Argv[1:]...)
	o.Path = "/bin/sh"
}

// bindMemory gives a task's memory policy. cpus are the machine's that it runs on, all of the step's where it is not
// bound.
func bindMemory(s *steplayout.Shape, b *proto.StepBind, local int, cpus []int) (shim.MemPolicy, error) {
	p := shim.MemPolicy{Mode: shim.MemBind}
	if b.MemPrefer {
		p.Mode = shim.MemPreferred
	}
	switch b.Mem {
	case proto.BindLocal:
		for _, c := range cpus {
			if node, ok := s.NUMA[c]; ok && !slices.Contains(p.Nodes, node) {
				p.Nodes = append(p.Nodes, node)
			}
		}
		if len(p.Nodes) == 0 {
			return shim.MemPolicy{Mode: shim.MemLocal}, nil
		}
	case proto.BindRank:
		p.Nodes = []int{local}
		// more tasks than memory nodes go round
		if nodes := slices.Compact(slices.Sorted(maps.Values(s.NUMA))); len(nodes) > 0 {
			p.Nodes[0] = nodes[local%len(nodes)]
		}
	case proto.BindMap, proto.BindMask:
		set, err := steplayout.IndexSet(b.MemList[local%len(b.MemList)], b.Mem == proto.BindMask)
		if err != nil {
			return p, err
		}
		p.Nodes = steplayout.Members(set)
	default:
		return shim.MemPolicy{}, nil
	}
	if p.Mode == shim.MemPreferred { // the kernel takes one
		p.Nodes = p.Nodes[:1]
	}
	return p, nil
}
