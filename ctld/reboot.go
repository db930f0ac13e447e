package ctld

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"gbatch/ctld/events"
	"gbatch/ctld/power"
	"gbatch/ctld/program"
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// reboot.go reboots nodes that operators ask for: each is told when it has no job, and then has ResumeTimeout to come
// back. The nodes of a job with --reboot are told when the job has them, and it begins when they are back. What is
// asked for is in the state: the next leader goes on. It also keeps nodes powered down and up.

const (
	rebootPace = time.Second
	rebootAsk  = 70 * time.Second // for a node's answer; it waits a minute for RebootProgram
)

// askReboot notes, or cancels, reboots of nodes.
func (c *Controller) askReboot(ctx context.Context, who *caller, rq *proto.UpdateNodeRequest) error {
	cmd := &state.Reboots{Nodes: rq.Names, Op: state.AskReboot, By: who.User}
	if rq.Action == proto.CancelReboots {
		cmd.Op = state.CancelReboot
	}
	for _, kv := range rq.Set {
		switch strings.ToLower(kv.Key) {
		case "asap":
			cmd.ASAP = true
		case "reason":
			cmd.Reason = kv.Value
		case "nextstate":
			switch strings.ToUpper(kv.Value) {
			case "RESUME":
				cmd.Next = model.RebootResume
			case "DOWN":
				cmd.Next = model.RebootDown
			default:
				return refuse(proto.CodeBadRequest, "nextstate=%s: write RESUME or DOWN", kv.Value)
			}
		default:
			return refuse(proto.CodeBadRequest, "%s: reboot takes ASAP, nextstate=RESUME|DOWN and reason=TEXT", kv.Key)
		}
	}
	if cmd.Op == state.AskReboot {
		if err := c.mayReboot(true); err != nil {
			return err
		}
		for _, name := range rq.Names {
			if n := c.machine.View().Node(name); n != nil && n.Def.External {
				return refuse(proto.CodeBadRequest, "node %s is State=EXTERNAL: the system that it belongs to reboots it", name)
			}
		}
	}
	res, err := c.changes(ctx, keyOf(ctx), &proto.Empty{}, nil, []state.Body{cmd})
	if err != nil {
		return err
	}
	for i, r := range res[0].Each {
		switch r {
		case state.StillEnding:
			return refuse(proto.CodeNodesBusy, "node %s is rebooting already", rq.Names[i])
		case state.NotPending:
			return refuse(proto.CodeInvalidNode, "no reboot of node %s is asked for", rq.Names[i])
		}
	}
	return nil
}

// mayReboot refuses jobs whose nodes are rebooted for them, and reboots where none can be.
func (c *Controller) mayReboot(operator bool) error {
	if !operator {
		return refuse(proto.CodeAccess, "--reboot is for operators: leave it out, or ask one for gcontrol reboot")
	}
	if c.machine.View().Config().Params.Rules.Reboot == "" {
		return refuse(proto.CodeRequeue, "RebootProgram is not set in gbatch.conf: nodes can't be rebooted")
	}
	return nil
}

// reboot is Reboot: whether the nodes of a waiting job are rebooted before it begins. They are its own then.
func (ed *editing) reboot(kv model.KV) error {
	switch strings.ToLower(kv.Value) {
	case "yes":
		kv.Value = "1"
	case "no":
		kv.Value = "0"
	}
	n, err := ed.numberOf(kv, 0, 1)
	if err != nil {
		return err
	}
	m := ed.sp.Extra()
	if m.Reboot = n == 1; m.Reboot {
		if err := ed.c.mayReboot(ed.operator); err != nil {
			return err
		}
		ed.sp.Exclusive, m.Share, m.ExclusiveUser = true, false, false
	}
	ed.sp.More = &m
	ed.specChanged, ed.replace = true, true
	return nil
}

// keepReboots tells nodes to reboot once they have no job, and gives up those that don't come back.
func (c *Controller) keepReboots(ctx context.Context) {
	told := map[string]*session{}
	for ctx.Err() == nil {
		v := c.machine.View()
		var ready, late []string
		v.Nodes(func(n *model.Node) bool {
			switch name := n.Def.Name; {
			case n.Reboot == nil:
				delete(told, name)
			case n.Reboot.Step == model.RebootAsked:
				if len(n.Jobs) == 0 {
					ready = append(ready, name)
				}
			case c.now() >= n.Reboot.At.Add(v.Config().Params.Rules.RebootS):
				late = append(late, name)
			default:
				if s := c.nodes.session(name); s != nil && told[name] != s {
					told[name] = s
					go c.tellReboot(ctx, name, n.BootID) // ends with the answer or ctx
				}
			}
			return true
		})
		c.reboots(ctx, &state.Reboots{Nodes: ready, Op: state.IssueReboot})
		c.reboots(ctx, &state.Reboots{Nodes: late, Op: state.GiveUpReboot, Reason: "reboot timed out"})
		pause(ctx, rebootPace)
	}
}

// keepPower powers nodes down and up.
func (c *Controller) keepPower(ctx context.Context) {
	env := []string{program.Path}
	if path := os.Getenv("SLURM_CONF"); path != "" {
		env = append(env, "SLURM_CONF="+path)
	}
	k := &power.Keeper{View: c.machine.View, Now: c.now, Propose: c.propose, Cut: c.nodes.cut, Env: env, Log: c.log}
	k.Run(ctx)
}

func (c *Controller) reboots(ctx context.Context, cmd *state.Reboots) {
	for list := range slices.Chunk(cmd.Nodes, model.MaxList) {
		one := *cmd
		one.Nodes = list
		if _, err := c.propose(ctx, &one); err != nil && ctx.Err() == nil {
			c.log.Warn("reboots of nodes were not noted; it is tried again", "err", err)
		}
	}
}

// tellReboot tells one node to reboot. One that can't is given up at once.
func (c *Controller) tellReboot(ctx context.Context, node, boot string) {
	ctx, cancel := context.WithTimeout(ctx, rebootAsk)
	defer cancel()
	c.log.Info("a node is told to reboot", "node", node)
	answer, err := c.askNode(ctx, node, proto.NodeAsk{Reboot: boot})
	switch {
	case err != nil:
		c.log.Info("a node that was told to reboot has not answered", "node", node, "err", err)
	case answer.Failed != "":
		c.log.Warn("a node could not reboot", "node", node, "why", answer.Failed)
		c.reboots(ctx, &state.Reboots{Nodes: []string{node}, Op: state.GiveUpReboot, Reason: "reboot failed: " +
			answer.Failed})
	}
}

// changeSpare changes which nodes are never powered down for being idle.
func (c *Controller) changeSpare(ctx context.Context, who *caller, rq *proto.UpdateNodeRequest) error {
	if c.level(who) < model.AdminFull {
		return refuse(proto.CodeAccess, "settings of the cluster are changed by administrators")
	}
	c.defining.Lock()
	defer c.defining.Unlock()
	cfg, err := conf.ChangeSpare(c.machine.View().Config(), rq.Set)
	if err != nil {
		return refuse(proto.CodeBadRequest, "%v", err)
	}
	deed := c.by(who).One(trail.ConfigChanged, trail.Config, cfg.Cluster, settings(rq.Set))
	_, err = c.change(events.With(ctx, deed), &proto.Empty{}, nil, &state.SetConfig{Config: cfg})
	if err == nil {
		c.log.Info("which nodes stay powered up was changed", "set", settings(rq.Set), "by", who.User)
	}
	return err
}
