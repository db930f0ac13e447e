package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/acctmgr"
	"gbatch/internal/ask"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/migrate"
	"gbatch/internal/migrate/pools"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// bringPools makes what YAML documents ask for, by the requests that gacctmgr and gcontrol make. What is there already
// stays as it is, but for the settings that the documents name.
func (o *importOptions) bringPools(r *migrate.Report) (said string, err error) {
	data, err := readPools(o.pools)
	if err != nil {
		return "", err
	}
	nodes := map[string]string{}
	for _, text := range o.nodes {
		pool, list, ok := strings.Cut(text, "=")
		if _, err := hostlist.Expand(list); !ok || err != nil {
			return "", fmt.Errorf("--nodes %s: write POOL=NODES, such as training=gpu[1-8]", text)
		}
		nodes[pool] = list
	}
	name := filepath.Base(o.pools)
	w, err := pools.Read(name, data, func(pool string) string { return nodes[pool] }, r)
	if err != nil {
		return "", err
	}
	if err := o.scripts(name, w.Jobs, r); err != nil {
		return "", err
	}
	if len(w.Steps) == 0 {
		return fmt.Sprintf("pools: nothing to make, %s", plural(len(w.Jobs), "script")), nil
	}
	cl, err := controllers()
	if err != nil {
		return "", err
	}
	defer cl.Close()
	if err := tellSettings(cl, name, w, r); err != nil {
		return "", err
	}
	m := making{cl: cl, r: r, dryRun: o.dryRun, fresh: map[string]bool{}}
	for i := range w.Steps {
		if err := m.step(&w.Steps[i]); err != nil {
			return "", err
		}
	}
	word := " made or changed"
	if o.dryRun {
		word = " to make or change"
	}
	return fmt.Sprintf("pools: %s%s, %s", plural(m.did, "record"), word, plural(len(w.Jobs), "script")), nil
}

func readPools(path string) (data []byte, err error) {
	f := os.Stdin
	if path != "-" {
		if f, err = os.Open(path); err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // nothing was written
	}
	return io.ReadAll(io.LimitReader(f, pools.MaxBytes+1))
}

// scripts writes the jobs' scripts into -o's directory. One that is there and differs is left alone without --force.
func (o *importOptions) scripts(from string, jobs []pools.Job, r *migrate.Report) error {
	for _, j := range jobs {
		key := "ElasticJob " + j.Name
		if o.output == "" {
			r.Add(migrate.Translated, from, 0, key, "a script: with a directory for scripts (gcontrol import -O, gbatch import "+
				"-o) it is written as %s.sh, which gsubmit submits", j.Name)
			continue
		}
		path := filepath.Join(o.output, j.Name+".sh")
		old, err := os.ReadFile(path)
		switch {
		case err == nil && string(old) == j.Script:
			r.Add(migrate.Kept, from, 0, key, "%s is there already", path)
			continue
		case err == nil && !o.force:
			r.Add(migrate.Person, from, 0, key, "%s is there and differs: --force writes over it", path)
			continue
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return err
		}
		if !o.dryRun {
			if err := os.MkdirAll(o.output, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(j.Script), 0o755); err != nil {
				return err
			}
		}
		r.Add(migrate.Translated, from, 0, key, "its script is %s: gsubmit submits it, as the user whose job it is", path)
	}
	return nil
}

// tellSettings reports the settings of gbatch.conf that limits and guarantees need and lack.
func tellSettings(cl *client.Client, file string, w *pools.Wanted, r *migrate.Report) error {
	var reply proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return err
	}
	if (w.Limits || w.Guarantees) && !reply.Config.Params.HoldLimits {
		r.Add(migrate.Person, file, 0, "limits", "they hold no job before AccountingStorageEnforce in gbatch.conf has limits")
	}
	for _, kv := range reply.Config.Show {
		if w.Guarantees && kv.Key == "PreemptType" && kv.Value != "preempt/qos" {
			r.Add(migrate.Person, file, 0, "guarantees",
				"nothing is taken back for them under PreemptType=%s: write PreemptType=preempt/qos and PreemptMode=REQUEUE in "+
					"gbatch.conf", kv.Value)
		}
	}
	return nil
}

// making makes steps.
type making struct {
	cl     *client.Client
	r      *migrate.Report
	dryRun bool
	did    int
	fresh  map[string]bool // what a dry run would have made
}

// step makes one record, and reports what became of it. A refusal is reported: the others are made all the same.
func (m *making) step(s *pools.Step) error {
	var kind migrate.Kind
	var text string
	var err error
	switch s.What {
	case pools.QOS, pools.Account:
		kind, text, err = m.account(s)
	case pools.Partition:
		kind, text, err = m.partition(s)
	default:
		kind, text, err = m.reservation(s)
	}
	var refused *rpc.Error
	if errors.As(err, &refused) && refused.Code < rpc.CodeInternal {
		kind, text, err = migrate.Person, strings.TrimSpace(refused.Error()), nil
	}
	if err != nil {
		return err
	}
	if kind == migrate.Translated {
		m.did++
	}
	m.r.Add(kind, s.File, s.Line, s.Key, "%s %s: %s", s.What, s.Name, text)
	return nil
}

// account makes or changes a QOS or an account. Others may change accounts meanwhile: then it begins anew.
func (m *making) account(s *pools.Step) (migrate.Kind, string, error) {
	const tries = 16
	for n := 1; ; n++ {
		facts, err := acctmgr.Ask(m.cl.Stream, m.cl.Decode)
		if err != nil {
			return 0, "", err
		}
		there := isThere(facts, s)
		name, where := []string{s.Name}, []string{"where", "name=" + s.Name}
		if s.Pool != "" {
			name, where = append(name, "partition="+s.Pool), append(where, "partition="+s.Pool)
		}
		made := slices.Concat(name, s.New, s.Set)
		line := "gacctmgr add " + s.What + " " + strings.Join(made, " ")
		if there || m.fresh[s.What+" "+strings.Join(name, " ")] {
			line = "gacctmgr modify " + s.What + " " + strings.Join(append(where, append([]string{"set"}, s.Set...)...), " ")
		}
		if m.dryRun && (!there || m.anyFresh(s)) {
			m.fresh[s.What+" "+strings.Join(name, " ")] = true
			return migrate.Translated, line, nil
		}
		if there && len(s.Set) == 0 {
			return migrate.Kept, "it is there already", nil
		}
		var plan *acctmgr.Plan
		if there {
			plan, err = acctmgr.Modify(facts, s.What, slices.Concat(where, []string{"set"}, s.Set))
		} else {
			plan, err = acctmgr.Add(facts, s.What, made)
		}
		if err != nil {
			return migrate.Person, strings.TrimSpace(err.Error()), nil // it is in the report
		}
		if len(plan.Edits) == 0 {
			return migrate.Kept, "it is so already", nil
		}
		if was := wasSet(facts, s); was != "" {
			line += " (it was there, with " + was + ")"
			if n == 1 {
				m.warnOf(s)
			}
		}
		if m.dryRun {
			return migrate.Translated, line, nil
		}
		err = m.cl.Call(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: facts.Gen, Edits: plan.Edits}, &proto.Empty{})
		var e *rpc.Error
		if errors.As(err, &e) && e.Code == proto.CodeOutdated && n < tries {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		return migrate.Translated, line, err
	}
}

// isThere reports whether a QOS, an account, or an account's limits in a pool are there.
func isThere(facts *acctmgr.Facts, s *pools.Step) bool {
	switch {
	case s.What == pools.QOS:
		return facts.QOS[s.Name] != nil
	case s.Pool == "":
		return facts.Accounts[s.Name] != nil
	}
	return slices.ContainsFunc(facts.Associations(s.Name, ""),
		func(a *model.Association) bool { return a.User == "" && a.Partition == s.Pool })
}

// warnOf says whom the change of a QOS that was there concerns besides the jobs of the queue.
func (m *making) warnOf(s *pools.Step) {
	if s.What != pools.QOS {
		return
	}
	if s.Name == model.DefaultQOS {
		m.r.Add(migrate.Person, s.File, s.Line, s.Key, "QOS %s is what jobs have that name none: the queue's settings are "+
			"for all of them. Give the queue another name if they are not meant", s.Name)
	}
	if slices.ContainsFunc(s.Set, func(w string) bool { return strings.HasPrefix(w, "GuaranteedTRES=") }) {
		m.r.Add(migrate.Person, s.File, s.Line, s.Key, "what a partition keeps back (ReservePercent) holds no job of QOS %s "+
			"within its GuaranteedTRES", s.Name)
	}
}

// wasSet gives the settings of a QOS, or of an account's limits in a pool, that are there, as far as a step changes
// them; "" if there is none.
func wasSet(facts *acctmgr.Facts, s *pools.Step) string {
	var grp, guaranteed []model.TRESLimit
	q := facts.QOS[s.Name]
	switch {
	case s.What == pools.QOS && q != nil:
		grp, guaranteed = q.GrpTRES, q.GuaranteedTRES
	case s.What == pools.Account && s.Pool != "" && isThere(facts, s):
		for _, a := range facts.Associations(s.Name, "") {
			if a.User == "" && a.Partition == s.Pool {
				grp, guaranteed = a.GrpTRES, a.GuaranteedTRES
			}
		}
		q = &model.QOS{}
	default:
		return ""
	}
	var out []string
	for _, w := range s.Set {
		switch key, _, _ := strings.Cut(w, "="); key {
		case "Priority":
			out = append(out, fmt.Sprintf("Priority=%d", q.Priority))
		case "GrpTRES":
			out = append(out, "GrpTRES="+acctmgr.TRESText(grp))
		case "GuaranteedTRES":
			out = append(out, "GuaranteedTRES="+acctmgr.TRESText(guaranteed))
		case "Preempt":
			out = append(out, "Preempt="+strings.Join(q.Preempt, ","))
		case "GrpSubmitJobs":
			out = append(out, "GrpSubmitJobs="+limitText(q.GrpSubmit))
		case "Flags+":
			out = append(out, "Flags="+q.Flags.String())
		}
	}
	return strings.Join(out, " ")
}

// limitText writes a limit on a number of jobs; there may be none.
func limitText(l model.Limit) string {
	if n, set := l.Value(); set {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// anyFresh reports whether a setting names what this dry run would have made.
func (m *making) anyFresh(s *pools.Step) bool {
	for _, w := range s.Set {
		_, names, _ := strings.Cut(w, "=")
		for name := range strings.SplitSeq(names, ",") {
			if m.fresh[pools.QOS+" "+name] {
				return true
			}
		}
	}
	return false
}

func (m *making) partition(s *pools.Step) (migrate.Kind, string, error) {
	p, have, err := m.findPartition(s.Name)
	if err != nil {
		return 0, "", err
	}
	rq := &proto.UpdatePartitionRequest{Action: proto.CreatePartition, Name: s.Name}
	words := slices.Concat(s.New, s.Set)
	verb := "create"
	if p != nil {
		rq.Action, words, verb = proto.ChangePartition, nil, "update"
		for _, w := range s.Set { // what it allows besides stays allowed
			key, value, _ := strings.Cut(w, "=")
			old := p.AllowAccounts
			if key == "AllowQos" {
				old = p.AllowQOS
			}
			list := slices.Clone(old)
			for name := range strings.SplitSeq(value, ",") {
				if !slices.Contains(list, name) {
					list = append(list, name)
				}
			}
			if len(old) > 0 && len(list) > len(old) { // where all are allowed, these are
				words = append(words, key+"="+strings.Join(list, ","))
			}
		}
	}
	if len(words) == 0 {
		return migrate.Kept, "it is there already" + lacks(s.GPUs, have), nil
	}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		rq.Set = append(rq.Set, model.KV{Key: key, Value: value})
	}
	line := "gcontrol " + verb + " PartitionName=" + s.Name + " " + strings.Join(words, " ")
	if p == nil {
		m.r.Add(migrate.Person, s.File, s.Line, s.Key, "the next gcontrol reconfigure takes partition %s out again unless "+
			"gbatch.conf has this line: PartitionName=%[1]s %s", s.Name, strings.Join(words, " "))
	} else {
		m.r.Add(migrate.Person, s.File, s.Line, s.Key, "partition %s was there: the next gcontrol reconfigure undoes the "+
			"change unless its line in gbatch.conf has %s", s.Name, strings.Join(words, " "))
	}
	if m.dryRun {
		return migrate.Translated, line, nil
	}
	if err := m.cl.Call(proto.KindUpdatePartition, rq, &proto.Empty{}); err != nil {
		return 0, "", err
	}
	if _, have, err = m.findPartition(s.Name); err == nil {
		line += lacks(s.GPUs, have)
	}
	return migrate.Translated, line, err
}

// findPartition gives a partition, nil if there is none, and how many GPUs it has.
func (m *making) findPartition(name string) (p *model.Partition, have int64, err error) {
	var reply proto.PartitionsReply
	if err := m.cl.Call(proto.KindPartitions, &proto.Empty{}, &reply); err != nil {
		return nil, 0, err
	}
	for i, p := range reply.Partitions {
		if p.Name != name {
			continue
		}
		if i < len(reply.Gres) {
			for _, g := range reply.Gres[i].Gres {
				if g.Name == "gpu" {
					have += g.Count
				}
			}
		}
		return p, have, nil
	}
	return nil, 0, nil
}

func lacks(want, have int64) string {
	if want == 0 || want == have {
		return ""
	}
	return fmt.Sprintf(" (its nodes have %d GPUs, the pool has %d)", have, want)
}

func (m *making) reservation(s *pools.Step) (migrate.Kind, string, error) {
	var reply proto.ReservationsReply
	if err := m.cl.Call(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		return 0, "", err
	}
	for _, r := range reply.List {
		if r.Name == s.Name {
			return migrate.Kept, "it is there already", nil
		}
	}
	rq := &proto.ReserveRequest{Action: proto.CreateReservation, Name: s.Name}
	for _, w := range s.New {
		key, value, _ := strings.Cut(w, "=")
		if key == "StartTime" && value == "now" {
			value = ask.MomentText(reply.Now)
		}
		rq.Set = append(rq.Set, model.KV{Key: key, Value: value})
	}
	line := "gcontrol create reservation ReservationName=" + s.Name + " " + strings.Join(s.New, " ")
	if m.dryRun {
		return migrate.Translated, line, nil
	}
	return migrate.Translated, line, m.cl.Call(proto.KindReserve, rq, &proto.ReserveReply{})
}
