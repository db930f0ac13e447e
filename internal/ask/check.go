package ask

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// What no node has more of, so that products of it with counts of tasks and GPUs can't overflow.
const (
	MaxCount     = 1 << 20 // of most things that are counted
	MaxTasks     = 1 << 30
	maxMemPerGPU = 1 << 40 // MiB
	maxGPUMem    = 1 << 24 // MiB
	maxSampleS   = 1 << 20 // --acctg-freq

	maxSocketGPUs = 1 << 24 // of a node, all sockets together
)

// Check refuses what sp asks for where its parts don't go together, or are nothing that can be asked for. It knows no
// cluster: whether there is as much is the controller's question. Commands ask before they submit, and the controller
// before it believes them.
func Check(sp *model.Spec) error {
	m := sp.Extra()
	checks := [...]func(*model.Spec, *model.Needs) error{checkCounts, checkFeatures, checkLicenses, checkShares,
		checkSockets, checkIndex, checkGPUs, checkPlace, checkTimes, checkElastic}
	for _, check := range checks {
		if err := check(sp, &m); err != nil {
			return err
		}
	}
	return nil
}

// checkCounts looks at each number by itself.
func checkCounts(sp *model.Spec, m *model.Needs) error {
	for _, n := range [...]struct {
		option      string
		value, most int64
	}{
		{"--nodes", int64(sp.MinNodes), MaxTasks}, {"--nodes", int64(sp.MaxNodes), MaxTasks},
		{"--ntasks", int64(sp.Tasks), MaxTasks}, {"--ntasks-per-node", int64(sp.TasksPerNode), MaxTasks},
		{"--cpus-per-task", int64(sp.CPUsPerTask), MaxTasks}, {"--mincpus", int64(sp.MinCPUs), MaxTasks},
		{"--mem-per-cpu", sp.MemPerCPU, maxMemPerGPU}, {"--tmp", sp.TmpMiB, 0},
		{"--switches", int64(m.Switches), MaxCount}, {"--switches", m.SwitchWaitS, 0},
		{"--segment", int64(m.Segment), MaxCount},
		{"--sockets-per-node", int64(m.Sockets), MaxCount}, {"--cores-per-socket", int64(m.CoresPerSocket), MaxCount},
		{"--threads-per-core", int64(m.ThreadsPerCore), MaxCount},
		{"--ntasks-per-socket", int64(m.TasksPerSocket), MaxCount},
		{"--ntasks-per-core", int64(m.TasksPerCore), MaxCount}, {"--cpus-per-gpu", int64(m.CPUsPerGPU), MaxCount},
		{"--mem-per-gpu", m.MemPerGPU, maxMemPerGPU}, {"--gpu-mem", m.GPUMemMiB, maxGPUMem}, {"--time-min", m.TimeMinS, 0},
	} {
		switch {
		case n.value < 0:
			return refuse(Request, "%s=%d is negative", n.option, n.value)
		case n.most > 0 && n.value > n.most:
			return refuse(Request, "%s=%d is more than any node has; the most is %d", n.option, n.value, n.most)
		}
	}
	if m.Segments < model.SegmentsAnywhere || m.Segments > model.SegmentsApart {
		return refuse(Request, "this version knows no place of segments of the number %d", m.Segments)
	}
	if m.Segments != model.SegmentsAnywhere && m.Segment == 0 {
		return refuse(Request, "--consolidate-segments and --spread-segments say how segments lie to each other: give "+
			"--segment=N too, or leave them out")
	}
	if sp.MaxNodes != 0 && sp.MaxNodes < sp.MinNodes {
		return refuse(Nodes, "--nodes=%d-%d: the most is smaller than the least", sp.MinNodes, sp.MaxNodes)
	}
	if sp.MemPerNode < 0 && sp.MemPerNode != model.WholeMem {
		return refuse(Request, "--mem=%d is negative", sp.MemPerNode)
	}
	if m.SampleS < -1 || m.SampleS > maxSampleS {
		return refuse(Request, "--acctg-freq=task=%d: write 0 to %d seconds", m.SampleS, maxSampleS)
	}
	return nil
}

func checkFeatures(sp *model.Spec, m *model.Needs) error {
	if _, err := model.ParseFeatures(sp.Features); err != nil {
		return refuse(Feature, "%v", err)
	}
	return CheckPrefer(m.Prefer)
}

// CheckPrefer reads --prefer: features that a job would rather have, and a model that its GPUs had better have loaded.
func CheckPrefer(v string) error {
	v, _, err := model.SplitPrefer(v)
	if err != nil {
		return refuse(Feature, "%v", err)
	}
	f, err := model.ParseFeatures(v)
	switch {
	case err != nil:
		return refuse(Feature, "%v", err)
	case f != nil && len(f.Same)+len(f.Counts) > 0:
		return refuse(Feature, "'%s': brackets and counts are for --constraint; join what you would rather have with & "+
			"and |", v)
	}
	return nil
}

func checkLicenses(_ *model.Spec, m *model.Needs) error {
	if len(m.Licenses) > model.MaxLicenses {
		return refuse(License, "--licenses names %d licenses, the limit is %d", len(m.Licenses), model.MaxLicenses)
	}
	for i, l := range m.Licenses {
		if l.Name == "" || l.Count < 1 || l.Count > model.MaxFeatureCount {
			return refuse(License, "%d of '%s' is no count of a license", l.Count, l.Name)
		}
		for _, o := range m.Licenses[:i] {
			if o.Name == l.Name {
				return refuse(License, "%s stands twice", l.Name)
			}
		}
	}
	return nil
}

// checkShares holds that a job has either whole GPUs or shares of one on each node, and parts of GPUs only.
func checkShares(sp *model.Spec, _ *model.Needs) error {
	var share *model.GresReq
	whole := false
	for i := range sp.Gres {
		g := &sp.Gres[i]
		switch {
		case g.Count < 0:
			return refuse(Gres, "%s: a count is 0 at least", GresText(g))
		case g.Count == 0:
		case !model.IsShare(g.Name):
			whole = whole || g.Name == model.GPUName
			if g.Milli != 0 {
				return refuse(Gres, "%s: only GPUs are shared in parts", g.Name)
			}
		case share != nil:
			return refuse(Gres, "%s and %s: a job has shares of one kind, and of one GPU on each node; ask for more of one "+
				"of them, or for whole GPUs", GresText(share), GresText(g))
		case g.Per != model.PerNode:
			return refuse(Gres, "%s: shares are counted by node; use --gres=%s:%d", g.Name, g.Name, g.Count)
		case g.Milli < 0 || g.Milli >= 1000 || g.Milli > 0 && g.Name != model.ShardName:
			return refuse(Gres, "%d/1000 of a GPU: a part is less than 1; ask for whole GPUs, such as --gpus=1", g.Milli)
		default:
			share = g
		}
	}
	if share != nil && sp.Stated().GPUFreq != "" {
		return refuse(Gres, "--gpu-freq beside %s: others have shares of the same GPU, whose clock a job can't choose; "+
			"leave out --gpu-freq", GresText(share))
	}
	if share != nil && whole {
		return refuse(Gres, "%s beside whole GPUs: a job has either whole GPUs or shares of one; submit two jobs, or ask "+
			"for whole GPUs", GresText(share))
	}
	return nil
}

// CheckShares is the part of Check that has to be said again of a request whose resources got other names (mig:1g.10gb
// is gpu:1g.10gb).
func CheckShares(sp *model.Spec) error { return checkShares(sp, nil) }

// checkGPUs holds that what goes with GPUs has some.
func checkGPUs(sp *model.Spec, m *model.Needs) error {
	gpus, shares := false, false
	for i := range sp.Gres {
		g := &sp.Gres[i]
		gpus = gpus || g.Name == model.GPUName && g.Count > 0
		shares = shares || (model.IsShare(g.Name) || g.Name == model.MIGName) && g.Count > 0
	}
	const give = "give --gpus, --gpus-per-node, --gpus-per-task or --gres=gpu:N too"
	for i := range sp.Gres {
		if g := &sp.Gres[i]; g.Per == model.PerJob && g.Milli == 0 && g.Count > 0 && g.Count < sp.MinNodes {
			kind, words := Gres, ""
			if g.Name == model.GPUName {
				kind, words = Request, notValid+", --gpus < -N: "
			}
			return refuse(kind, "%s%d of %s for the job, and --nodes=%d: each node has one at least; use --gpus-per-node for "+
				"a number on each", words, g.Count, model.TypedName(g.Name, g.Type), sp.MinNodes)
		}
	}
	switch {
	case m.GresBind < model.BindPreferred || m.GresBind > model.BindDisabled:
		return refuse(Request, "--gres-flags: this version knows no binding of the number %d", m.GresBind)
	case m.GresBind == model.BindDisabled && len(m.GPUsPerSocket) > 0:
		return refuse(Request, "--gpus-per-socket and --gres-flags=disable-binding exclude each other: the first wants "+
			"each socket's GPUs, the second any")
	case m.GPUMemMiB > 0 && !gpus && !shares:
		return refuse(Request, "--gpu-mem needs GPUs: give --gpus, --gres=gpu:N or --gres=shard:N too")
	case m.OOMRequeue && !gpus && !shares:
		return refuse(Request, "--requeue-on-oom is about GPU memory: give --gpus, --gres=gpu:N or --gres=shard:N too")
	case m.OOMRequeue && sp.NoRequeue:
		return refuse(Request, "--requeue-on-oom and --no-requeue exclude each other: leave one out")
	case m.CPUsPerGPU > 0 && !gpus:
		return refuse(Request, "--cpus-per-gpu needs GPUs: %s", give)
	case m.MemPerGPU > 0 && !gpus:
		return refuse(Request, "--mem-per-gpu needs GPUs: %s", give)
	case m.CPUsPerGPU > 0 && sp.CPUsPerTask > 0:
		return refuse(Request, "--cpus-per-gpu is mutually exclusive with --cpus-per-task: leave one out")
	}
	return nil
}

// checkSockets holds that GPUs that are asked for by socket are those that a node gives, and no others.
func checkSockets(sp *model.Spec, m *model.Needs) error {
	if len(m.GPUsPerSocket) == 0 {
		return nil
	}
	if m.Sockets == 0 {
		return refuse(Request, "--gpus-per-socket option requires --sockets-per-node specification: give it too")
	}
	for i := range m.GPUsPerSocket {
		switch g := &m.GPUsPerSocket[i]; {
		case g.Milli > 0:
			return refuse(Request, "--gpus-per-socket=%s: by socket GPUs are given whole; use --gpus=%[1]s", PartText(g.Milli))
		case g.Name != model.GPUName || g.Count < 1 || g.Count > MaxCount:
			return refuse(Request, "--gpus-per-socket=%s:%d with --sockets-per-node=%d: write at least 1 of each",
				g.Name, g.Count, m.Sockets)
		case gpusOfType(sp.Gres, g.Type) != min(gpusOfType(m.GPUsPerSocket, g.Type)*int64(m.Sockets), maxSocketGPUs):
			return besideSockets(m)
		}
	}
	for i := range sp.Gres {
		g := &sp.Gres[i]
		switch {
		case g.Count == 0:
		case model.IsShare(g.Name):
			return refuse(Gres, "%s beside whole GPUs: a job has either whole GPUs or shares of one; leave out "+
				"--gpus-per-socket, or %[1]s", GresText(g))
		case g.Name == model.GPUName && (g.Per != model.PerNode || gpusOfType(m.GPUsPerSocket, g.Type) == 0):
			return besideSockets(m)
		}
	}
	return nil
}

// gpusOfType counts the GPUs of one type in a list.
func gpusOfType(list []model.GresReq, typ string) (n int64) {
	for i := range list {
		if g := &list[i]; g.Name == model.GPUName && strings.EqualFold(g.Type, typ) {
			n += int64(g.Count)
		}
	}
	return n
}

func besideSockets(m *model.Needs) error {
	return refuse(Request, orderOfGPUs+": --gpus-per-socket with --sockets-per-node=%d says already how many GPUs a node "+
		"gives: leave out --gpus, --gpus-per-node, --gpus-per-task and --gres=gpu", m.Sockets)
}

// checkIndex holds that GPUs that are asked for by number are asked for by node, and as many.
func checkIndex(sp *model.Spec, m *model.Needs) error {
	if m.GPUIndex.Empty() {
		return nil
	}
	if m.GPUIndex.Max() >= model.MaxGPUIndex {
		return refuse(Request, "--gpu-index: numbers go to %d", model.MaxGPUIndex-1)
	}
	n, sum := m.GPUIndex.Count(), 0
	for i := range sp.Gres {
		if g := &sp.Gres[i]; g.Name == model.GPUName && g.Count > 0 {
			if g.Per != model.PerNode || len(m.GPUsPerSocket) > 0 {
				return refuse(Request, "--gpu-index says which GPUs each node gives: leave out --gpus, --gpus-per-task and "+
					"--gpus-per-socket")
			}
			sum += int(g.Count)
		}
	}
	if sum != n {
		return refuse(Request, "--gpu-index=%s are %d GPUs on each node; leave out --gpus-per-node and --gres=gpu, or write "+
			"%[2]d there", m.GPUIndex, n)
	}
	return nil
}

// checkPlace holds that wishes of where the nodes are don't contradict each other.
func checkPlace(sp *model.Spec, m *model.Needs) error {
	switch {
	case m.Contiguous && m.Spread:
		return refuse(Request, "--contiguous and --spread-job exclude each other")
	case m.Spread && m.FewNodes:
		return refuse(Request, "--spread-job and --use-min-nodes exclude each other")
	case m.Reboot && !sp.Exclusive:
		return refuse(Request, "--reboot is for whole nodes: give --exclusive")
	}
	return nil
}

func checkTimes(sp *model.Spec, m *model.Needs) error {
	if sp.Warning != nil {
		if err := sp.Warning.Check(); err != nil {
			return refuse(Request, "--signal: %v", err)
		}
	}
	if m.TimeMinS > 0 && sp.LimitS != model.NotSet && m.TimeMinS > sp.LimitS {
		return refuse(Time, "--time-min=%s is more than --time=%s", limitText(m.TimeMinS), limitText(sp.LimitS))
	}
	return nil
}

func limitText(s int64) string { return walltime.Limit(s, s >= model.Unlimited) }
