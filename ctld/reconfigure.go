package ctld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"gbatch/ctld/define"
	"gbatch/ctld/events"
	"gbatch/internal/conf"
	"gbatch/internal/conf/thishost"
	"gbatch/internal/hostlist"
	"gbatch/internal/logfile"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// loadConfig reads the configuration files. The configuration is nil when there are errors in them.
func (c *Controller) loadConfig() (*conf.Config, []conf.Problem) {
	cfg, problems := c.opts.Load()
	for _, p := range problems {
		if p.Severity == conf.Error {
			return nil, problems
		}
	}
	return cfg, problems
}

func firstProblem(problems []conf.Problem) string {
	for _, p := range problems {
		if p.Severity == conf.Error {
			return fmt.Sprintf("%s (gbatch check lists every problem)", p)
		}
	}
	return "no configuration could be read"
}

// reconfigure reads the files again and replaces the configuration in one step, or not at all.
func (c *Controller) reconfigure(ctx context.Context, who *caller,
	rq *proto.ReconfigureRequest) (*proto.ReconfigureReply, error) {
	c.rereads.Lock()
	defer c.rereads.Unlock()
	files, problems := c.loadConfig() // its file system may hang: nothing else waits for it
	c.defining.Lock()
	defer c.defining.Unlock()
	if files != nil {
		if p, differ := otherCluster(c.machine.View(), files); differ {
			files, problems = nil, append(problems, p)
		}
	}
	if files != nil {
		if c.opts.ConfigPath != "" { // its directories are those of the files
			problems = append(problems, thishost.Look(files, thishost.Daemons{Controller: c.opts.Name})...)
		}
		if p, differ := c.otherControllers(files); differ {
			files, problems = nil, append(problems, p)
		}
	}
	reply := &proto.ReconfigureReply{}
	for _, p := range problems {
		reply.Problems = append(reply.Problems,
			proto.Problem{File: p.File, Line: int32(p.Line), Severity: p.Severity.String(), Text: p.Text, Hint: p.Hint})
	}
	if files == nil {
		return reply, nil
	}
	cfg, v := c.configOf(files), c.machine.View()
	undone, err := define.Undo(v.Config(), cfg)
	if err != nil {
		return nil, refuse(proto.CodeConfig, "%v", err)
	}
	reply.Problems = append(reply.Problems, rewritten(v.Config(), cfg, files.Path, c.now())...)
	reply.Undone = undone
	reply.Changes = configDiff(v.Config(), cfg)
	reply.Affected = affected(v, cfg)
	reply.Notes = slices.Concat(stayOut(v, cfg), unknownQOS(v, cfg))
	reply.Restart = restarts(v, c.members(), c.withoutMembers(files, reply.Changes))
	if rq.DryRun {
		return reply, nil
	}
	// Other files count as a change even if nothing that is shown differs: their sum is kept, and what an older version
	// didn't show is taken up.
	if len(reply.Changes) == 0 && v.Config().Hash == cfg.Hash && reflect.DeepEqual(v.Config().Params, cfg.Params) {
		reply.Applied = true
		if v.HasTriggers() { // some may be about that it was read
			if _, err := c.propose(ctx, &state.Triggers{Op: state.Reconfigured}); err != nil {
				return nil, err
			}
		}
		return reply, nil
	}
	reply.Applied = true
	if err := c.takeOut(ctx, v, cfg); err != nil {
		return nil, err
	}
	deed := c.by(who).One(trail.ConfigChanged, trail.Config, cfg.Cluster, changesText(reply.Changes))
	if who.User == sighup || who.User == atStart { // whose process it was is not known
		deed[0].By, deed[0].ByUser, deed[0].UID = who.User, false, 0
	}
	if _, err := c.change(events.With(ctx, deed), reply, nil, &state.SetConfig{Config: cfg}); err != nil {
		return nil, err
	}
	c.nodes.retell()
	c.log.Info("reconfigured", "changes", len(reply.Changes), "by", who.User)
	for _, s := range undone {
		c.log.Info("reconfigure has undone a change", "what", s, "by", who.User)
	}
	return reply, nil
}

// otherCluster says that files name another cluster than the one that this state, its certificates and its records are
// of.
func otherCluster(v *state.View, files *conf.Config) (conf.Problem, bool) {
	have := v.Config().Cluster
	return conf.Problem{File: files.Path, Severity: conf.Error,
		Text: fmt.Sprintf("ClusterName=%s, but the state in StateSaveLocation is that of cluster %s", files.ClusterName,
			have),
		Hint: fmt.Sprintf("write ClusterName=%s: a cluster keeps its name; for another cluster give StateSaveLocation, "+
			"PKIDir and DbdStateLocation of its own", have),
	}, have != "" && files.ClusterName != have
}

// watchCluster ends this controller if its files name another cluster than its state, as soon as that is known.
func (c *Controller) watchCluster(ctx context.Context) error {
	for c.opts.Cluster != "" && ctx.Err() == nil {
		changed := c.machine.Changed()
		v := c.machine.View()
		if v.Config().Cluster == "" {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if p, differ := otherCluster(v, &conf.Config{Path: c.opts.ConfigPath, ClusterName: c.opts.Cluster}); differ {
			return errors.New(p.String())
		}
		break
	}
	<-ctx.Done()
	return nil
}

// byFiles is who takes nodes out that the configuration files take out.
const byFiles = "gbatch.conf"

// takeOut takes out the nodes that new files have DOWN, DRAIN or FAIL and the present ones don't. What operators do
// with a node afterwards stands until the files change again.
func (c *Controller) takeOut(ctx context.Context, v *state.View, cfg *model.Config) error {
	var list []*state.NodeEdit
	for _, def := range cfg.Nodes {
		n := v.Node(def.Name)
		if n == nil || def.Admin == model.NodeUp || n.Def.Admin == def.Admin {
			continue
		}
		i := slices.IndexFunc(list, func(e *state.NodeEdit) bool { return e.Admin == def.Admin && e.Reason == def.Reason })
		if i < 0 {
			i, list = len(list), append(list, &state.NodeEdit{Admin: def.Admin, Reason: def.Reason, By: byFiles})
		}
		list[i].Nodes = append(list[i].Nodes, def.Name)
	}
	for _, e := range list {
		if _, err := c.propose(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// rewritten warns of what would change the cost of runs that have started: reports about the past and invoices of it
// would have other numbers than before.
func rewritten(old, cfg *model.Config, file string, now model.Time) (list []proto.Problem) {
	for _, key := range old.Params.Price.Rewrites(&cfg.Params.Price, now.Seconds()) {
		list = append(list, proto.Problem{File: file, Severity: conf.Warning.String(),
			Text: key + ": what jobs cost that have started changes with it, in reports and on invoices that are yet to be " +
				"made",
			Hint: "keep the old line, and write the new " + key + " on a line of its own that ends with From=DATE"})
	}
	return list
}

// sighup is who reconfigures by a signal, atStart who does so by starting gctld.
const (
	sighup  = "SIGHUP"
	atStart = "start of gctld"
)

// takeFiles takes up files that were changed since the cluster last read them, as a restart of Slurm's controller does,
// when the only controller begins to lead for the first time. With several of them a stale file on one would roll the
// cluster back: the difference is only said, here and by gcontrol doctor.
func (c *Controller) takeFiles(ctx context.Context) {
	first := !c.filesTaken.Swap(true)
	files, problems := c.loadConfig()
	switch {
	case files == nil:
		c.log.Error("the configuration files have errors: the cluster keeps its configuration", "err",
			firstProblem(problems))
	case files.Hash == c.machine.View().Config().Hash:
	case first && len(c.members()) == 1:
		reply, err := c.reconfigure(ctx, &caller{Caller: proto.Caller{User: atStart}, most: model.RightsAdministrator},
			&proto.ReconfigureRequest{})
		if err == nil && !reply.Applied { // the files were read: the last problem is that they name other controllers
			err = errors.New(reply.Problems[len(reply.Problems)-1].Text)
		}
		if err != nil && ctx.Err() == nil {
			c.log.Error("the changed configuration files can't be taken up: the cluster keeps its configuration", "err", err)
		}
	default:
		c.log.Warn("the configuration files of this controller differ from the cluster's configuration, which stays; " +
			"gcontrol reconfigure takes them up, with --dry-run it shows the difference")
	}
}

// maxChangesText bounds the changes that the trail names.
const maxChangesText = 50

// changesText writes changes of the configuration in one line.
func changesText(list []proto.Change) string {
	var words []string
	for i := range list {
		if i == maxChangesText {
			words = append(words, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		words = append(words, fmt.Sprintf("%s: %s -> %s", list[i].Key, list[i].Old, list[i].New))
	}
	return strings.Join(words, "; ")
}

// hangups answers SIGHUP until ctx ends: the log is opened anew, and the configuration is read as by gcontrol
// reconfigure, on the leader for the cluster.
func (c *Controller) hangups(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		if c.opts.Log != nil {
			if err := c.opts.Log.Reopen(); err != nil {
				c.log.Error("the log could not be opened anew; it goes on in the old file", "err", err)
			}
		}
		c.log.Info("SIGHUP: the log is open, the configuration is read")
		files, problems := c.loadConfig()
		if files == nil {
			c.log.Error("the configuration has errors: nothing is changed", "err", firstProblem(problems))
			continue
		}
		c.setLevel(files.SlurmctldDebug)
		if !c.leading.Load() {
			continue
		}
		self := &caller{Caller: proto.Caller{User: sighup}, most: model.RightsAdministrator}
		if _, err := c.reconfigure(ctx, self, &proto.ReconfigureRequest{}); err != nil && ctx.Err() == nil {
			c.log.Error("the cluster could not be reconfigured", "err", err)
		}
	}
}

// setDebug changes the level of this controller's log until SlurmctldDebug is read again.
func (c *Controller) setDebug(_ context.Context, who *caller, rq *proto.SetDebugRequest) error {
	name, err := logfile.LevelName(rq.Level)
	if err != nil {
		return refuse(proto.CodeBadRequest, "%v", err)
	}
	c.setLevel(name)
	c.log.Info("the log's level was changed", "level", name, "by", who.User)
	return nil
}

func (c *Controller) setLevel(name string) {
	if c.opts.Log != nil {
		c.opts.Log.SetLevel(name)
	}
}

// maxAffected bounds the sentences of one answer.
const maxAffected = 100

// affected lists the jobs and nodes that a new configuration affects.
func affected(v *state.View, cfg *model.Config) []string {
	nodes, parts := map[string]*model.NodeDef{}, map[string]bool{}
	for _, n := range cfg.Nodes {
		nodes[n.Name] = n
	}
	for _, p := range cfg.Partitions {
		parts[p.Name] = true
	}
	var out, gone, jobs []string
	v.Nodes(func(n *model.Node) bool {
		if def := nodes[n.Def.Name]; def == nil {
			gone = append(gone, n.Def.Name)
			if len(n.Jobs) > 0 {
				out = append(out, fmt.Sprintf("node %s leaves; its %s there first, no new one starts", n.Def.Name,
					count(len(n.Jobs), "running job ends", "running jobs end")))
			}
		} else if n.UsedCPUs.Max() >= int(def.CPUs) {
			out = append(out, fmt.Sprintf("node %s shrinks to %d CPUs while a job uses CPU %d", n.Def.Name, def.CPUs,
				n.UsedCPUs.Max()))
		}
		return len(out) < maxAffected
	})
	if len(gone) > 0 {
		out = append(out, "nodes that leave: "+hostlist.Compress(gone))
	}
	v.Jobs(func(j *model.Job) bool {
		if j.State != model.Pending {
			return true
		}
		for _, p := range j.Spec.Partitions {
			if parts[p] {
				return true
			}
		}
		jobs = append(jobs, itoa(int32(j.ID)))
		return len(jobs) < maxAffected
	})
	if len(jobs) > 0 {
		out = append(out, fmt.Sprintf(
			"pending jobs whose partition goes away, and that will wait until it is back or they are changed: %v", jobs))
	}
	out = append(out, keptForNobody(v, cfg)...)
	if !cfg.Params.Preempt.ByQOS {
		var idle []string
		v.AllQOS(func(q *model.QOS) bool {
			if len(q.GuaranteedTRES) > 0 {
				idle = append(idle, q.Name)
			}
			return len(idle) < maxAffected
		})
		if len(idle) > 0 {
			out = append(out, fmt.Sprintf("GuaranteedTRES of QOS %s has no effect under PreemptType=%s",
				strings.Join(idle, ", "), shownValue(cfg, "PreemptType")))
		}
		idle = nil
		v.Associations(func(a *model.Association) bool {
			if len(a.GuaranteedTRES) > 0 && !slices.Contains(idle, a.Account) {
				idle = append(idle, a.Account)
			}
			return len(idle) < maxAffected
		})
		if len(idle) > 0 {
			out = append(out, fmt.Sprintf("GuaranteedTRES of account %s has no effect under PreemptType=%s",
				strings.Join(idle, ", "), shownValue(cfg, "PreemptType")))
		}
	}
	return out
}

// stayOut names the nodes that the files took out, and no longer do: they come back when an operator says so.
func stayOut(v *state.View, cfg *model.Config) []string {
	var names []string
	for _, def := range cfg.Nodes {
		n := v.Node(def.Name)
		if n != nil && def.Admin == model.NodeUp && n.Def.Admin != model.NodeUp && n.Admin != model.NodeUp {
			names = append(names, def.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("nodes that the files no longer take out stay out until gcontrol update NodeName=%s "+
		"State=RESUME", hostlist.Compress(names))}
}

// unknownQOS names the QOS of partitions that don't exist.
func unknownQOS(v *state.View, cfg *model.Config) (out []string) {
	for _, p := range cfg.Partitions {
		if p.QOS != "" && v.QOS(p.QOS) == nil && len(out) < maxAffected {
			out = append(out, fmt.Sprintf("partition %s: QOS=%s does not exist and limits nothing; gacctmgr add qos %[2]s "+
				"makes it", p.Name, p.QOS))
		}
		for _, list := range [...]struct {
			key   string
			names []string
		}{{"AllowQos", p.AllowQOS}, {"DenyQos", p.DenyQOS}} {
			missing := slices.DeleteFunc(slices.Clone(list.names), func(name string) bool {
				return strings.EqualFold(name, "ALL") || v.QOS(name) != nil
			})
			if len(missing) > 0 && len(out) < maxAffected {
				out = append(out, fmt.Sprintf("partition %s: %s names QOS that don't exist: %s", p.Name, list.key,
					strings.Join(missing, ",")))
			}
		}
	}
	return out
}

// keptForNobody names the partitions whose ReservePercent keeps something back for nobody.
func keptForNobody(v *state.View, cfg *model.Config) []string {
	var parts []string
	for _, p := range cfg.Partitions {
		if p.Headroom > 0 && len(parts) < maxAffected {
			parts = append(parts, p.Name)
		}
	}
	some := false
	v.AllQOS(func(q *model.QOS) bool {
		some = q.Flags&model.QOSHeadroom != 0
		return !some
	})
	if some || len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("ReservePercent of partition %s keeps a part back for nobody but jobs that can be ended "+
		"at once: no QOS has the flag Headroom (gacctmgr modify qos NAME set flags+=Headroom)", strings.Join(parts, ", "))}
}

// shownValue gives a setting of a configuration, as show config prints it.
func shownValue(cfg *model.Config, key string) string {
	for _, kv := range cfg.Show {
		if kv.Key == key {
			return kv.Value
		}
	}
	return ""
}
