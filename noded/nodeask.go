package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/crash"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// nodeask.go answers the leader's questions to this node. For usage it takes a sample at that moment.

const (
	// maxStats is how many questions are answered at once; further ones go unanswered, and the leader says so.
	maxStats = 4
	// maxStatAttempts bounds the attempts in one question.
	maxStatAttempts = proto.MaxStatJobs
	// stepListWait is how long the loop may take to list steps.
	stepListWait = 5 * time.Second
)

// answerNode answers a question while the session goes on reading orders.
func (n *Noded) answerNode(conn *rpc.Conn, ask *proto.NodeAsk) {
	if len(ask.Signals) > 0 {
		n.inbox.post(msgSignals{ask.Signals, func() {
			n.answer(conn, &proto.NodeAnswer{ID: ask.ID, Signalled: int32(len(ask.Signals))})
		}})
		return
	}
	slots := n.stats
	if ask.Tail != nil {
		slots = n.tails // a file system may hang, and other questions go on
	}
	if ask.MIG != nil || ask.Reboot != "" {
		slots = n.migs // it may take minutes, and other questions go on
	}
	select {
	case slots <- struct{}{}:
	default:
		n.log.Warn("too many queries about running jobs at once; one is not answered")
		return
	}
	go func() { // it ends with the write, which has a limit of its own
		defer func() { <-slots }()
		defer func() {
			if err := crash.Recovered(recover()); err != nil {
				n.log.Error("a question of the controller has failed, and the daemon goes on", "err", err)
				n.answer(conn, &proto.NodeAnswer{ID: ask.ID, Failed: "its gnoded has failed at this; its log says where"})
			}
		}()
		answer := &proto.NodeAnswer{ID: ask.ID}
		if ask.Doctor {
			answer = n.examine(ask)
		}
		if ask.About {
			answer = &proto.NodeAnswer{ID: ask.ID, About: n.about()}
		}
		if ask.Tail != nil {
			answer = n.readTail(ask)
		}
		if ask.Waits {
			answer.Findings = n.tellWaits(ask.Attempts[:min(len(ask.Attempts), maxStatAttempts)])
			ask.Attempts = nil
		}
		if ask.MIG != nil {
			answer = &proto.NodeAnswer{ID: ask.ID, MIG: n.divide(ask.MIG)}
		}
		if ask.Reboot != "" {
			answer = &proto.NodeAnswer{ID: ask.ID}
			if err := n.reboot(ask.Reboot); err != nil {
				answer.Failed = err.Error()
			}
		}
		if ask.Steps || len(ask.Tell) > 0 {
			reply := make(chan *proto.NodeAnswer, 1)
			n.inbox.post(msgStepList{ask, reply})
			select {
			case answer = <-reply:
			case <-time.After(stepListWait): // gnoded ends
				return
			}
			ask.Attempts = nil
		}
		for _, key := range ask.Attempts[:min(len(ask.Attempts), maxStatAttempts)] {
			answer.List = append(answer.List, n.sampler.live(key)...)
		}
		n.answer(conn, answer)
	}()
}

// answer sends an answer. It may wait for the connection.
func (n *Noded) answer(conn *rpc.Conn, m *proto.NodeAnswer) {
	body, err := proto.Encode(m)
	if err == nil {
		err = conn.WriteFrame(proto.KindNodeAnswer, 0, 0, body)
	}
	if err != nil {
		n.log.Debug("an answer about running jobs was not sent", "err", err)
	}
}

// rebootWait is how long RebootProgram may take; the host is expected to go down meanwhile.
const rebootWait = time.Minute

// maxProgramText bounds what an error repeats of a program's output, bytes.
const maxProgramText = 512

// reboot runs RebootProgram, if the order is for the host's present boot.
func (n *Noded) reboot(boot string) error {
	program := n.configured().Reboot
	switch {
	case boot != n.inv.BootID:
		return nil // it has been done: the order came late
	case program == "":
		return errors.New("RebootProgram is not set in gbatch.conf")
	}
	n.log.Warn("this host is rebooted, as an operator has asked for", "program", program)
	ctx, cancel := context.WithTimeout(n.ctx, rebootWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	n.opts.Starter.Wrap(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil && n.ctx.Err() == nil {
		text := strings.TrimSpace(string(out[:min(len(out), maxProgramText)]))
		return fmt.Errorf("RebootProgram=%s: %w %s", program, err, strings.ToValidUTF8(text, "?"))
	}
	return nil
}

// about is what this daemon says of itself. It is asked by the leader, now.
func (n *Noded) about() *proto.DaemonAbout {
	a := &proto.DaemonAbout{Node: n.opts.Name, Version: n.opts.Version, Hw: n.inv.Hw, UpSince: n.upSince,
		PID: int32(os.Getpid()), Heard: n.hostTime(), Steps: n.sampler.stepsHere()}
	if c := n.opts.Config; c != nil {
		a.Level, a.Log = c.SlurmdDebug, conf.ExpandPath(c.SlurmdLogFile, n.opts.Name, n.opts.Host)
	}
	return a
}
