package sim

import (
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// What `gacct -P` (or sacct -P) prints: a header, then a line for each job and step with | between the fields. Steps
// are passed over. A good call is
//
//	gacct -a -X -P -S 2026-01-01 \
//	  -o JobIDRaw,User,Account,Partition,Submit,Start,End,TimelimitRaw,State,NNodes,ReqCPUS,ReqTRES
const acctCall = "gacct -a -X -P -o " +
	"JobIDRaw,User,Account,Partition,Submit,Start,End,TimelimitRaw,State,NNodes,ReqCPUS,ReqTRES"

func isAcct(head string) bool {
	return strings.Contains(head, "|") && strings.Contains(strings.ToLower(head), "jobid")
}

func readAcct(l *lines) (*Workload, error) {
	w := &Workload{Name: l.file}
	head, _ := l.next()
	t, err := newTable(l, head, '|')
	if err != nil {
		return nil, err
	}
	id := t.has("jobidraw", "jobid")
	cpus := t.has("reqcpus", "alloccpus", "ncpus")
	tres := t.has("reqtres", "alloctres")
	nodes := t.has("reqnodes", "nnodes", "allocnodes")
	timed := t.has("elapsedraw", "elapsed") != "" || t.has("start") != "" && t.has("end") != ""
	if cpus == "" && tres == "" || !timed || t.has("submit") == "" {
		return nil, l.bad("the dump doesn't say how large the jobs were, when they were submitted or how long they ran: " +
			acctCall + " prints what is wanted")
	}
	t.hint = "; where a job's name or command has a | in it, leave them out: " + acctCall + " prints what is wanted"
	for k := int64(1); ; k++ {
		ok, err := t.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if err := l.room(w); err != nil {
			return nil, err
		}
		name := t.text(id)
		if strings.Contains(name, ".") { // a step
			continue
		}
		j := Job{User: t.text("user"), Account: t.text("account"), Queue: partitionName(t.text("partition"))}
		if j.ID, err = strconv.ParseInt(name, 10, 64); err != nil {
			j.ID = k // a task of an array: its place in the dump
		}
		submit, known, err := t.moment("submit")
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, l.bad("job %s has no submit time", shorten(name))
		}
		j.Submit = submit
		if state, _, _ := strings.Cut(t.text("state"), " "); state == "PENDING" || state == "RUNNING" ||
			state == "SUSPENDED" {
			w.leave("not over when the dump was made")
			continue
		}
		if err := acctTimes(t, &j); err != nil {
			return nil, err
		}
		n, err := t.number(cpus, maxUnits)
		if err != nil {
			return nil, err
		}
		m, err := t.number(nodes, maxNodes)
		if err != nil {
			return nil, err
		}
		j.CPUs, j.Nodes = int32(n), int32(m)
		if err := acctTRES(t, &j, t.text(tres)); err != nil {
			return nil, err
		}
		if j.Nodes > max(j.CPUs, j.GPUs) {
			j.Nodes = 0
		}
		w.add(j)
	}
	w.rebase()
	return w, nil
}

// acctTimes sets the job's run time and time limit.
func acctTimes(t *table, j *Job) error {
	start, begun, err := t.moment("start")
	if err != nil {
		return err
	}
	end, over, err := t.moment("end")
	if err != nil {
		return err
	}
	switch raw, text := t.text("elapsedraw"), t.text("elapsed"); {
	case raw != "":
		if j.Run, err = t.number("elapsedraw", maxSeconds); err != nil {
			return err
		}
	case text != "":
		s, err := clock(text)
		if err != nil {
			return t.l.bad("elapsed is %q: [days-]hours:minutes:seconds is wanted", shorten(text))
		}
		j.Run = s
	case begun && over:
		j.Run = max(0, end-start)
	}
	if j.Run > maxSeconds {
		return t.l.bad("the job ran for %d seconds: at most %d", j.Run, int64(maxSeconds))
	}
	if raw := t.text("timelimitraw"); raw != "" {
		minutes, err := strconv.ParseInt(raw, 10, 64)
		if err == nil && minutes > 0 && minutes < maxSeconds/60 {
			j.Request = minutes * 60
		}
		return nil // UNLIMITED, Partition_Limit: no estimate
	}
	if text := t.text("timelimit"); text != "" {
		if s, err := clock(text); err == nil && s < maxSeconds {
			j.Request = s
		}
	}
	return nil
}

// clock reads [days-]hours:minutes:seconds as accounting prints it.
func clock(s string) (int64, error) {
	text, _, _ := strings.Cut(s, ".")
	if strings.Count(text, ":") == 1 && !strings.Contains(text, "-") {
		text = "00:" + text
	}
	seconds, unlimited, err := walltime.ParseLimit(text)
	if unlimited {
		return 0, nil
	}
	return seconds, err
}

// acctTRES reads GPUs, and processors if no column has them, from a list such as cpu=4,mem=8G,gres/gpu=2.
func acctTRES(t *table, j *Job, list string) error {
	types, whole := 0, false // gres/gpu is the sum of the types, and stands before them where it stands
	for item := range ask.Amounts(list) {
		set := func(to *int32) error {
			n, err := item.Count()
			if err != nil || n > maxUnits {
				return t.l.bad("%s is %q: a number from 0 to %d is wanted", shorten(item.TRES), shorten(item.Text), maxUnits)
			}
			*to = int32(n)
			return nil
		}
		var err error
		name, typ, _ := model.TRESGres(item.TRES)
		switch {
		case item.TRES == "cpu" && j.CPUs == 0:
			err = set(&j.CPUs)
		case name != model.GPUName:
		case typ == "":
			whole = true
			err = set(&j.GPUs)
		default:
			if types++; types == 1 {
				j.GPUType = typ
			} else { // of several: of any
				j.GPUType = ""
			}
			if !whole {
				had := j.GPUs
				err = set(&j.GPUs)
				j.GPUs += had
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
