package control

import (
	"errors"
	"fmt"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// nodes.go changes nodes: by update, create and delete, and by reboot and power.

// changeNodes sends a change of nodes.
func (c *control) changeNodes(action proto.NodeAction, ch *change, failed string) error {
	names, err := c.nodeNames(ch.name)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("NodeName=%s names no node; write NodeName=n1 or NodeName=n[1-4]", ch.name)
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	if err := cl.Call(proto.KindUpdateNode, &proto.UpdateNodeRequest{Names: names, Set: ch.set, Action: action},
		&proto.Empty{}); err != nil {
		return plain{fmt.Errorf("%s: %s", failed, env.Text(err))}
	}
	return nil
}

// changeSpare sends a change of which nodes are never powered down for being idle.
func (c *control) changeSpare(words []string) error {
	rq := &proto.UpdateNodeRequest{Action: proto.ChangeSpare}
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		if !has {
			return fmt.Errorf("'%s' is not KEY=VALUE; write SuspendExcNodes=n[1-4]:2, SuspendExcNodes+=n5 or "+
				"SuspendExcParts-=main", w)
		}
		rq.Set = append(rq.Set, model.KV{Key: key, Value: value})
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	if err := cl.Call(proto.KindUpdateNode, rq, &proto.Empty{}); err != nil {
		return plain{fmt.Errorf("slurm_update error: %s", env.Text(err))}
	}
	return nil
}

// nodeNames expands a host list; ALL is every node.
func (c *control) nodeNames(expr string) ([]string, error) {
	if !strings.EqualFold(expr, "ALL") {
		return hostlist.Expand(expr)
	}
	var names []string
	infos, _, err := c.nodes(nil)
	for _, i := range infos {
		names = append(names, i.Node.Def.Name)
	}
	return names, err
}

// reboot reboots nodes: reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] [NODES|ALL].
func (c *control) reboot(words []string) error {
	ch := &change{}
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		switch low := strings.ToLower(key); {
		case low == "asap" && !has:
			ch.set = append(ch.set, model.KV{Key: "ASAP"})
		case has && (low == "nextstate" || low == "reason"):
			ch.set = append(ch.set, model.KV{Key: low, Value: value})
		case !has && ch.name == "":
			ch.name = w
		default:
			return fmt.Errorf("'%s': write reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] [NODES|ALL]", w)
		}
	}
	if ch.name == "" {
		return errors.New("Missing node list. Specify ALL|<NodeList>: reboot [ASAP] [nextstate=RESUME|DOWN] " +
			"[reason=TEXT] NODES, or ALL")
	}
	return c.changeNodes(proto.RebootNodes, ch, "scontrol_reboot_nodes error")
}

// power powers nodes up or down: power up|down [asap|force] [reason=TEXT] NODES|ALL.
func (c *control) power(words []string) error {
	const usage = "power up NODES|ALL, or power down [asap|force] [reason=TEXT] NODES|ALL"
	if len(words) < 2 {
		return errors.New("which nodes? Write " + usage)
	}
	ch, state := &change{}, ""
	for i, w := range words {
		key, value, has := strings.Cut(w, "=")
		switch low := strings.ToLower(w); {
		case i == 0 && (low == "up" || low == "down"):
			state = "POWER_" + strings.ToUpper(w)
		case i > 0 && (low == "asap" || low == "force") && state == "POWER_DOWN":
			state += "_" + strings.ToUpper(w)
		case i > 0 && has && strings.EqualFold(key, "reason"):
			ch.set = append(ch.set, model.KV{Key: "Reason", Value: value})
		case i > 0 && !has && ch.name == "":
			ch.name = w
		default:
			return fmt.Errorf("'%s': write %s", w, usage)
		}
	}
	if ch.name == "" {
		return errors.New("which nodes? Write " + usage)
	}
	ch.set = append(ch.set, model.KV{Key: "State", Value: state})
	return c.changeNodes(proto.ChangeNodes, ch, "slurm_update error")
}

// tag says which models GPUs have loaded: tag node=NODES gpu=0-3 model+=NAME|model-=NAME.
func (c *control) tag(words []string) error {
	const usage = "tag node=NODES gpu=NUMBERS model+=NAME | model-=NAME"
	ch, models := &change{}, 0
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		switch low := strings.ToLower(key); {
		case !has || value == "":
			return fmt.Errorf("'%s': write %s", w, usage)
		case low == "node" || low == "nodename":
			ch.name = value
		case low == "gpu":
			ch.set = append(ch.set, model.KV{Key: "Gres", Value: "gpu:" + value})
		case low == "model+" || low == "model-":
			models++
			ch.set = append(ch.set, model.KV{Key: low, Value: value})
		default:
			return fmt.Errorf("'%s': write %s", w, usage)
		}
	}
	if ch.name == "" || models == 0 || len(ch.set) == models {
		return errors.New("which models of which GPUs? Write " + usage)
	}
	return c.changeNodes(proto.ChangeNodes, ch, "slurm_update error")
}

// cancelReboot takes back a reboot that has not begun.
func (c *control) cancelReboot(words []string) error {
	if len(words) != 1 {
		return errors.New("which nodes? Write cancel_reboot NODES")
	}
	return c.changeNodes(proto.CancelReboots, &change{name: words[0]}, "scontrol_cancel_reboot_nodes error")
}
