package sim

import (
	"regexp"
	"strconv"
	"strings"
)

// CSV of jobs, one a line under a header. Columns have the names of Helios' cluster_log.csv, of the common form that
// the shipped slice of it has (whose submit_time counts microseconds), or those that --jobs-out writes.
var (
	csvID      = []string{"job_id", "id", "jobid"}
	csvUser    = []string{"user"}
	csvAccount = []string{"account", "group"}
	csvQueue   = []string{"vc", "tenant", "queue", "partition"}
	csvSubmit  = []string{"submit_time", "submit"}
	csvCPUs    = []string{"cpu_num", "cpus", "num_cpus"}
	csvGPUs    = []string{"gpu_num", "num_chips", "gpus", "num_gpus"}
	csvNodes   = []string{"node_num", "num_nodes", "nodes"}
	csvRun     = []string{"duration_s", "duration", "run_s"}
	csvRequest = []string{"walltime_limit_s", "requested_s"}
)

// poolNote is how the slice says what nodes each virtual cluster has.
var (
	poolNote = regexp.MustCompile(`pool sizes \(nodes, (\d{1,4}) GPU/node\): (.*)`)
	poolSize = regexp.MustCompile(`([A-Za-z0-9_.-]+)=(\d{1,6})`)
)

// isJobCSV reports whether a line can be such a header.
func isJobCSV(head string) bool {
	names := map[string]bool{}
	for name := range strings.SplitSeq(strings.ToLower(head), ",") {
		names[strings.TrimSpace(name)] = true
	}
	any := func(list []string) bool {
		for _, n := range list {
			if names[n] {
				return true
			}
		}
		return false
	}
	return any(csvID) && any(csvSubmit) && any(csvRun)
}

func readGPUCSV(l *lines) (*Workload, error) {
	w := &Workload{Name: l.file}
	var head string
	for {
		line, ok := l.next()
		if !ok {
			return w, nil
		}
		if strings.HasPrefix(line, "#") {
			if m := poolNote.FindStringSubmatch(line); m != nil {
				w.Pools = poolList(m[1], m[2])
			}
			continue
		}
		if line != "" {
			head = line
			break
		}
	}
	t, err := newTable(l, head, ',')
	if err != nil {
		return nil, err
	}
	id, submit, run := t.has(csvID...), t.has(csvSubmit...), t.has(csvRun...)
	cpus, gpus := t.has(csvCPUs...), t.has(csvGPUs...)
	if cpus == "" && gpus == "" {
		return nil, l.bad("no column says how many processors or GPUs a job has: cpus or gpus is wanted")
	}
	micro := t.has("num_chips") != "" // the common form
	dated := false
	for {
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
		var j Job
		var bad [6]error
		j.ID, bad[0] = t.number(id, 1<<40)
		j.Run, bad[1] = t.number(run, maxSeconds)
		j.Request, bad[2] = t.number(t.has(csvRequest...), maxSeconds)
		var n [3]int64
		n[0], bad[3] = t.number(cpus, maxUnits)
		n[1], bad[4] = t.number(gpus, maxUnits)
		n[2], bad[5] = t.number(t.has(csvNodes...), maxNodes)
		for _, err := range bad {
			if err != nil {
				return nil, err
			}
		}
		j.CPUs, j.GPUs, j.Nodes = int32(n[0]), int32(n[1]), int32(n[2])
		if j.GPUs > 0 && j.Nodes > j.GPUs || j.GPUs == 0 && j.Nodes > j.CPUs {
			j.Nodes = 0
		}
		j.User, j.Account, j.Queue = t.text(t.has(csvUser...)), t.text(t.has(csvAccount...)),
			partitionName(t.text(t.has(csvQueue...)))
		if micro {
			if j.Submit, err = t.number(submit, 1<<60); err != nil {
				return nil, err
			}
			j.Submit /= 1_000_000
		} else {
			var known bool
			if j.Submit, known, err = t.moment(submit); err != nil {
				return nil, err
			}
			if !known {
				return nil, l.bad("%s is empty: a job that was never submitted can't be simulated", submit)
			}
			dated = dated || strings.ContainsAny(t.text(submit), "-:")
		}
		w.add(j)
	}
	if dated {
		w.rebase()
	}
	return w, nil
}

func poolList(per, list string) []Pool {
	gpus, err := strconv.Atoi(per)
	if err != nil || gpus < 1 || gpus > maxGPUs {
		return nil
	}
	var out []Pool
	for _, m := range poolSize.FindAllStringSubmatch(list, 1000) {
		n, err := strconv.Atoi(m[2])
		if err != nil || n < 1 || n > maxNodes {
			return nil
		}
		out = append(out, Pool{Queue: partitionName(m[1]), Nodes: n, GPUs: gpus})
	}
	return out
}
