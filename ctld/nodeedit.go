package ctld

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/ctld/define"
	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// nodeedit.go carries out operators' changes of nodes and of single units, and handles nodes' reports on their units.

// updatePartition creates, changes and removes partitions.
func (c *Controller) updatePartition(ctx context.Context, who *caller, rq *proto.UpdatePartitionRequest) error {
	c.defining.Lock()
	defer c.defining.Unlock()
	v := c.machine.View()
	cmd, err := define.Partition(v, rq)
	if err != nil {
		return drafted(err)
	}
	verb := map[proto.PartAction]string{proto.CreatePartition: "create ", proto.ChangePartition: "update ",
		proto.DeletePartition: "delete "}[rq.Action]
	ctx = events.With(ctx, c.by(who).One(trail.PartChanged, trail.Partition, rq.Name, verb+settings(rq.Set)))
	if err := c.define(ctx, cmd); err != nil {
		return err
	}
	what := map[proto.PartAction]string{proto.CreatePartition: "created", proto.ChangePartition: "changed",
		proto.DeletePartition: "deleted"}[rq.Action]
	c.log.Info("partition "+what, "partition", rq.Name, "set", settings(rq.Set), "by", who.User)
	return nil
}

// drafted gives the error for the answer to a request that package define refuses.
func drafted(err error) error {
	var no *define.Refusal
	if errors.As(err, &no) {
		return refuse(no.Code, "%s", no.Detail)
	}
	return err
}

// define makes a change of definitions, with other commands before it.
func (c *Controller) define(ctx context.Context, cmd *state.Define, before ...state.Body) error {
	res, err := c.changes(ctx, keyOf(ctx), &proto.Empty{}, nil, append(before, cmd))
	if errors.Is(err, errRepeated) || err != nil {
		return err
	}
	switch r := res[len(res)-1].Refusal; r {
	case state.OK:
		return nil
	case state.JobsActive:
		if len(cmd.DropParts) > 0 {
			return refuse(proto.CodePartitionInUse, "a job has just come")
		}
		return refuse(proto.CodeNodesBusy, "a job has just come")
	default:
		return refuse(proto.CodeOutdated, "something else has changed it meanwhile (%s); try again", r)
	}
}

// settings gives key=value words in one line, for the log.
func settings(set []model.KV) string {
	var words []string
	for _, kv := range set {
		words = append(words, kv.Key+"="+kv.Value)
	}
	return strings.Join(words, " ")
}

// updateNode changes nodes: their state, their definitions, dynamic ones, reboots.
func (c *Controller) updateNode(ctx context.Context, who *caller, rq *proto.UpdateNodeRequest) error {
	if rq.Action == proto.ChangeSpare {
		return c.changeSpare(ctx, who, rq)
	}
	if len(rq.Names) == 0 {
		return refuse(proto.CodeInvalidNode, "NodeName= names none")
	}
	v := c.machine.View()
	may := rq.Action == proto.ChangeNodes || rq.Action == proto.DeleteNodes // of nodes that may come
	if rq.Action != proto.CreateNodes {
		for _, name := range rq.Names {
			if v.Node(name) == nil && !(may && v.Config().FutureNode(name) != nil) {
				return refuse(proto.CodeInvalidNode, "%s", name)
			}
		}
	}
	c.defining.Lock()
	defer c.defining.Unlock()
	verb := map[proto.NodeAction]string{proto.ChangeNodes: "update ", proto.CreateNodes: "create ",
		proto.DeleteNodes: "delete ", proto.RebootNodes: "reboot ", proto.CancelReboots: "cancel_reboot "}[rq.Action]
	ctx = events.With(ctx, c.by(who).Nodes(rq.Names, c.hostlist(rq.Names), verb+settings(rq.Set)))
	var err error
	switch rq.Action {
	case proto.ChangeNodes:
		err = c.changeNodes(ctx, who, rq)
	case proto.CreateNodes, proto.DeleteNodes:
		var cmd *state.Define
		if rq.Action == proto.CreateNodes {
			cmd, err = define.Create(v, rq.Names, rq.Set)
		} else {
			cmd, err = define.Delete(v, rq.Names)
		}
		if err != nil {
			return drafted(err)
		}
		if err = c.define(ctx, cmd); err == nil {
			c.registerAnew(cmd.DropNodes)
		}
	case proto.RebootNodes, proto.CancelReboots:
		err = c.askReboot(ctx, who, rq)
	default:
		err = refuse(proto.CodeBadRequest, "an unknown change of nodes (%d)", rq.Action)
	}
	if err == nil {
		c.log.Info("nodes "+nodeChanges[rq.Action], "nodes", c.hostlist(rq.Names), "set", settings(rq.Set), "by", who.User)
	}
	return err
}

var nodeChanges = map[proto.NodeAction]string{proto.ChangeNodes: "changed", proto.CreateNodes: "created",
	proto.DeleteNodes: "deleted", proto.RebootNodes: "to be rebooted", proto.CancelReboots: "not rebooted after all"}

// nodeWords are the settings of one update of nodes.
type nodeWords struct {
	edit   *state.NodeEdit
	units  string     // Gres= as it was written
	define []model.KV // settings of the nodes' definitions
	cancel bool       // State=CANCEL_REBOOT
	resume bool       // State=RESUME, and not IDLE or UNDRAIN
	future bool       // State=FUTURE
	power  model.PowerWant
	tags   bool // Model+= or Model-=: what GPUs have loaded
}

// readNodeWords reads the settings of an update of nodes.
func readNodeWords(rq *proto.UpdateNodeRequest, by string) (*nodeWords, error) {
	w := &nodeWords{edit: &state.NodeEdit{Nodes: rq.Names, Keep: true, By: by}}
	for _, kv := range rq.Set {
		if len(kv.Value) > proto.MaxFieldBytes {
			return nil, refuse(proto.CodeBadRequest, "%s is longer than %d bytes", kv.Key, proto.MaxFieldBytes)
		}
		switch low := nodeKey(kv.Key); {
		case low == "gres":
			w.units = kv.Value
			w.define = append(w.define, kv)
		case define.Defines(low):
			w.define = append(w.define, kv)
		case low == "comment":
			w.edit.Comment = &state.Words{Text: kv.Value}
		case low == "extra":
			w.edit.Extra = &state.Words{Text: kv.Value}
		case low == "reason":
			w.edit.Reason = kv.Value
		case low == "resumeafter":
			n, err := strconv.ParseInt(kv.Value, 10, 32)
			if err != nil || n < 1 {
				return nil, refuse(proto.CodeBadRequest, "ResumeAfter=%s: write a whole number of seconds from 1 to %d", kv.Value,
					math.MaxInt32)
			}
			w.edit.ResumeS = n
		case low == modelLoaded, low == modelGone:
			if err := w.models(low, kv.Value); err != nil {
				return nil, err
			}
		case low == "state":
			if err := w.state(kv.Value); err != nil {
				return nil, err
			}
		default:
			return nil, refuse(proto.CodeBadRequest, "Update of this parameter is not supported: %s; update node sets State, "+
				"Reason, AvailableFeatures, ActiveFeatures, Weight, Gres, CpuBind, NodeAddr, NodeHostName, Comment, Extra "+
				"and ResumeAfter, and with Gres=gpu:3 State and Reason of single units", kv.Key)
		}
	}
	return w, nil
}

// The keys that say which models GPUs have loaded: those that the jobs that used them asked for are known without.
const (
	modelLoaded = "model+"
	modelGone   = "model-"
)

// models reads Model+=NAME,... or Model-=NAME,...
func (w *nodeWords) models(key, value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if _, got, err := model.SplitPrefer("model:" + name); err != nil || name == "" || got != name {
			return refuse(proto.CodeBadRequest, "%s=%s: '%s' is no name of a model, as --prefer=model:NAME takes it", key,
				value, name)
		}
		if key == modelLoaded {
			w.edit.Loaded = append(w.edit.Loaded, name)
		} else {
			w.edit.Gone = append(w.edit.Gone, name)
		}
	}
	w.tags = true
	if len(w.edit.Loaded)+len(w.edit.Gone) > model.MaxFew {
		return refuse(proto.CodeBadRequest, "more than %d models in one command", model.MaxFew)
	}
	return nil
}

// tag changes which models GPUs are taken to have loaded.
func (c *Controller) tag(ctx context.Context, v *state.View, rq *proto.UpdateNodeRequest, w *nodeWords) error {
	e := w.edit
	for _, kv := range rq.Set {
		if low := nodeKey(kv.Key); low != "gres" && low != modelLoaded && low != modelGone {
			return refuse(proto.CodeBadRequest, "%s= stands beside Model+= or Model-=: make two commands of it", kv.Key)
		}
	}
	switch {
	case v.Config().Params.Cache.Tags == 0:
		return refuse(proto.CodeBadRequest, "no models of GPUs are remembered: GpuCacheTags is 0 in gbatch.conf")
	case w.units == "":
		return refuse(proto.CodeBadRequest, "which GPUs? Write Gres=gpu:0 or Gres=gpu:0-3 beside Model+= or Model-=")
	}
	if err := unitsOf(e, w.units); err != nil {
		return err
	}
	if e.Gres != model.GPUName {
		return refuse(proto.CodeBadRequest, "Gres=%s: only GPUs have models loaded; write Gres=gpu:0", w.units)
	}
	if err := unitsMay(v, e); err != nil {
		return err
	}
	_, err := c.changes(ctx, keyOf(ctx), &proto.Empty{}, nil, []state.Body{e})
	return err
}

// nodeKey gives a key of update node in small letters, in full if it is the beginning of one, as in scontrol.
func nodeKey(key string) string {
	low := strings.ToLower(key)
	for _, k := range []struct {
		name  string
		least int
	}{{"comment", 1}, {"extra", 1}, {"reason", 1}, {"state", 1}, {"gres", 1}} {
		if len(low) >= k.least && strings.HasPrefix(k.name, low) {
			return k.name
		}
	}
	return low
}

// nodeStates are the words of State= of which the beginning is enough, as in scontrol.
var nodeStates = []string{"DRAIN", "DOWN", "FAIL", "RESUME", "UNDRAIN", "IDLE"}

var powerWords = map[string]model.PowerWant{"POWER_UP": model.PowerUp, "POWER_DOWN": model.PowerDown,
	"POWER_DOWN_ASAP": model.PowerDownASAP, "POWER_DOWN_FORCE": model.PowerDownForce}

func (w *nodeWords) state(value string) error {
	e := w.edit
	e.Keep = false
	word := strings.ToUpper(value)
	for _, s := range nodeStates {
		if len(word) > 1 && strings.HasPrefix(s, word) {
			word = s
			break
		}
	}
	switch word {
	case "DRAIN":
		e.Admin = model.NodeDrain
	case "FAIL", "FAILING":
		e.Admin, e.Failing = model.NodeDrain, true
	case "DOWN":
		e.Admin = model.NodeDown
	case "RESUME", "IDLE", "UNDRAIN":
		e.Admin, w.resume = model.NodeUp, word == "RESUME"
	case "NORESP", "NO_RESPOND":
		return refuse(proto.CodeBadRequest, "State=%s: a node is that for as long as its gnoded does not answer, and nobody "+
			"can say it; write DRAIN or DOWN to take it out", value)
	case model.FutureText:
		e.Keep, w.future = true, true
	case "CANCEL_REBOOT":
		e.Keep, w.cancel = true, true
	default:
		want := powerWords[word]
		if want == model.PowerAsIs {
			return refuse(proto.CodeBadRequest, "Invalid node state specified: State=%s; write DRAIN, FAIL, DOWN, RESUME, "+
				"IDLE, UNDRAIN, FUTURE, CANCEL_REBOOT, POWER_UP, POWER_DOWN, POWER_DOWN_ASAP or POWER_DOWN_FORCE", value)
		}
		e.Keep, w.power = true, want
	}
	return nil
}

// changeNodes changes nodes' states and definitions.
func (c *Controller) changeNodes(ctx context.Context, who *caller, rq *proto.UpdateNodeRequest) error {
	v := c.machine.View()
	if len(rq.Set) == 0 {
		return refuse(proto.CodeBadRequest,
			"nothing to change: say what is wanted of the nodes, as in NodeName=n1 State=DRAIN Reason=\"bad fan\"")
	}
	w, err := readNodeWords(rq, who.User)
	if err != nil {
		return err
	}
	e := w.edit
	if w.tags {
		return c.tag(ctx, v, rq, w)
	}
	if !e.Keep && e.Admin != model.NodeUp && e.Reason == "" {
		return refuse(proto.CodeBadRequest,
			"You must specify a reason when DOWNING or DRAINING a node. Request denied; add Reason=\"...\"")
	}
	if e.ResumeS > 0 && (e.Keep || e.Admin == model.NodeUp || w.units != "") {
		return refuse(proto.CodeBadRequest, "ResumeAfter= stands beside State=DOWN, DRAIN or FAIL of whole nodes: they "+
			"resume after so many seconds")
	}
	if w.units != "" && !e.Keep { // State and Reason are for these units
		if len(w.define) > 1 {
			return refuse(proto.CodeBadRequest, "State of units of Gres=%s stands beside %s: make two commands of it",
				w.units, w.define[0].Key)
		}
		w.define = nil
		if err := unitsOf(e, w.units); err != nil {
			return err
		}
		if err := unitsMay(v, e); err != nil {
			return err
		}
	}
	if w.future {
		return c.leaveForFuture(ctx, v, rq)
	}
	whole := !e.Keep && e.Gres == ""
	come, err := coming(v, rq.Names, whole)
	if err != nil {
		return err
	}
	var idle error // the others are changed
	if whole && w.resume {
		if idle = c.leaveIdle(v, e); idle != nil && len(e.Nodes)+len(w.define) == 0 {
			return idle
		}
	}
	bodies := []state.Body{e}
	if come != nil {
		bodies = []state.Body{come, e}
	}
	if whole && e.Admin == model.NodeUp {
		bodies = append(bodies, c.stillLeaving(ctx, e.Nodes)...)
	}
	if w.power != model.PowerAsIs {
		if !v.Config().Params.Power.On() {
			return refuse(proto.CodeBadRequest, "Invalid node state specified: nodes are not powered down and up: "+
				"SuspendProgram and ResumeProgram are not set in gbatch.conf")
		}
		bodies = append(bodies, &state.Powers{Nodes: rq.Names, Op: state.AskPower, Want: w.power, By: who.User})
	}
	if w.cancel {
		bodies = append(bodies, &state.Reboots{Nodes: rq.Names, Op: state.CancelReboot, By: who.User})
	}
	if len(w.define) > 0 {
		if come != nil {
			return refuse(proto.CodeBadRequest, "State=%s, by which a node comes, stands beside %s: make two commands of it",
				stateOf(rq.Set), w.define[0].Key)
		}
		cmd, err := define.Change(v, rq.Names, w.define)
		if err != nil {
			return drafted(err)
		}
		return cmp.Or(c.define(ctx, cmd, bodies...), idle)
	}
	res, err := c.changes(ctx, keyOf(ctx), &proto.Empty{}, nil, bodies)
	switch {
	case err != nil:
		return err
	case come != nil && res[0].Refusal != state.OK:
		return refuse(proto.CodeOutdated, "something else has changed it meanwhile (%s); try again", res[0].Refusal)
	}
	if whole && e.Admin == model.NodeDown { // jobs that took too long to end have been given up
		now := c.machine.View()
		c.registerAnew(slices.DeleteFunc(slices.Clone(e.Nodes),
			func(name string) bool { return !ending(v, name) || ending(now, name) }))
	}
	return idle
}

// coming gives the command by which those of the nodes come that may (State=FUTURE); nil: there are none. Any state
// that a node can have makes them come.
func coming(v *state.View, names []string, whole bool) (*state.Define, error) {
	var list []string
	for _, name := range names {
		if v.Node(name) == nil {
			list = append(list, name)
		}
	}
	switch {
	case len(list) == 0:
		return nil, nil
	case !whole:
		return nil, refuse(proto.CodeBadRequest, "%s is State=FUTURE, and no node yet: its gnoded or State=RESUME makes it "+
			"come, and what it has stands in gbatch.conf", list[0])
	}
	cmd, err := define.Come(v, list)
	if err != nil {
		return nil, drafted(err)
	}
	return cmd, nil
}

// leaveForFuture makes nodes those that may come.
func (c *Controller) leaveForFuture(ctx context.Context, v *state.View, rq *proto.UpdateNodeRequest) error {
	for _, kv := range rq.Set {
		if k := nodeKey(kv.Key); k != "state" && k != "reason" {
			return refuse(proto.CodeBadRequest, "State=FUTURE stands beside %s: such a node has none", kv.Key)
		}
	}
	cmd, err := define.Leave(v, rq.Names)
	if err != nil || cmd == nil {
		return drafted(err)
	}
	if err := c.define(ctx, cmd); err != nil {
		return err
	}
	c.registerAnew(cmd.DropNodes)
	return nil
}

func stateOf(set []model.KV) string {
	for _, kv := range set {
		if nodeKey(kv.Key) == "state" {
			return kv.Value
		}
	}
	return ""
}

// leaveIdle takes nodes out of a State=RESUME that are up and have nothing that it would end, and says which.
func (c *Controller) leaveIdle(v *state.View, e *state.NodeEdit) error {
	var idle, rest []string
	for _, name := range e.Nodes {
		n := v.Node(name)
		if n != nil && n.Admin == model.NodeUp && n.Link == model.LinkUp && !n.Failing && n.Problem == "" &&
			n.Reason == "" && len(n.Strikes)+len(n.Out) == 0 && n.Reboot == nil && n.Power == nil && n.Ending == 0 {
			idle = append(idle, name)
		} else {
			rest = append(rest, name)
		}
	}
	if e.Nodes = rest; len(idle) == 0 {
		return nil
	}
	return refuse(proto.CodeBadRequest, "Invalid node state specified: State=RESUME, and there is nothing to "+
		"resume: %s is in service", c.hostlist(idle))
}

// unitsOf reads Gres=gpu:3, gpu:0-2 or gpu:0,5.
func unitsOf(e *state.NodeEdit, text string) error {
	name, list, ok := strings.Cut(text, ":")
	if !ok || name == "" || list == "" {
		return refuse(proto.CodeBadRequest, "Gres=%s: write the units that State and Reason are for, such as Gres=gpu:3 or "+
			"Gres=gpu:0-2,5; how many a node has stands in gbatch.conf", text)
	}
	e.Gres = strings.ToLower(name)
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || last < first || last-first >= model.MaxUnitTells {
			return refuse(proto.CodeBadRequest, "Gres=%s: %s is neither a unit's number nor a range of them, such as 3 or 0-2",
				text, part)
		}
		for i := first; i <= last; i++ {
			e.Units = append(e.Units, int32(i))
		}
	}
	if len(e.Units) > model.MaxUnitTells {
		return refuse(proto.CodeBadRequest, "Gres=%s: more than %d units", text, model.MaxUnitTells)
	}
	return nil
}

// unitsMay refuses changes that units don't allow.
func unitsMay(v *state.View, e *state.NodeEdit) error {
	switch {
	case e.Admin == model.NodeDown:
		return refuse(proto.CodeBadRequest,
			"State=DOWN is for whole nodes; write State=DRAIN or State=RESUME for single units")
	}
	resumes := !e.Keep && e.Admin == model.NodeUp
	for _, name := range e.Nodes {
		n := v.Node(name)
		has := int32(0)
		for i := range n.Def.Gres {
			if d := &n.Def.Gres[i]; d.Name == e.Gres {
				has = max(has, d.First+d.Count)
			}
		}
		for _, u := range e.Units {
			if u >= has {
				if has == 0 {
					return refuse(proto.CodeBadRequest, "node %s has no %s", name, e.Gres)
				}
				return refuse(proto.CodeBadRequest, "node %s has no %s %d; its units are %d to %d", name, e.Gres, u, 0, has-1)
			}
			for i := range n.Out {
				if o := &n.Out[i]; resumes && o.Name == e.Gres && o.Index == u && o.Kind == model.OutInUse {
					return refuse(proto.CodeBadRequest, "%s %d of node %s is %s; it comes back by itself once that is over, or "+
						"write GpuForeignUsePolicy=ignore in gbatch.conf", e.Gres, u, name, o.Reason)
				}
			}
		}
	}
	return nil
}

// hearUnits puts a node's report on its units into the log if it says anything new.
func (c *Controller) hearUnits(ctx context.Context, node string, tells []model.UnitTell, held []model.GPUHeld) {
	n := c.machine.View().Node(node)
	if n == nil || max(len(tells), len(held)) > model.MaxUnitTells {
		return // the node has left the configuration, or was never in it
	}
	for i := range tells {
		tells[i].Text = state.Brief(tells[i].Text)
	}
	_, fresh, changed := model.TellUnits(n.Out, tells, 0, "")
	if !changed && slices.Equal(n.Held, held) {
		return
	}
	for _, t := range tells {
		if len(fresh) > 0 && t.Kind == model.OutFault || t.Kind == model.OutSpent || t.Kind == model.OutLost {
			c.log.Warn("a node reports a unit unusable", "node", node, "gres", t.Name, "unit", t.Index, "why", t.Text)
		}
	}
	if _, err := c.propose(ctx, &state.Units{Node: node, Tells: tells, Held: held}); err != nil && ctx.Err() == nil {
		c.log.Warn("a node's report on its units was not applied; its next heartbeat repeats it", "node", node,
			"err", err)
	}
}
