package ctld

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// validNeeds checks rare requests, as the commands do.
func validNeeds(sp *model.Spec) error {
	if _, err := model.ParseFeatures(sp.Features); err != nil {
		return refuse(proto.CodeFeature, "--constraint: %v", err)
	}
	m := sp.More
	if m == nil {
		return nil
	}
	if len(m.Prefer) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "--prefer is %d bytes long, the limit is %d", len(m.Prefer), proto.MaxFieldBytes)
	}
	f, err := model.ParseFeatures(m.Prefer)
	if err != nil {
		return refuse(proto.CodeFeature, "--prefer: %v", err)
	}
	if f != nil && len(f.Same)+len(f.Counts) > 0 {
		return refuse(proto.CodeFeature, "--prefer='%s': brackets and counts are for --constraint", m.Prefer)
	}
	if len(m.Licenses) > model.MaxLicenses {
		return refuse(proto.CodeBadRequest, "--licenses names %d licenses, the limit is %d", len(m.Licenses),
			model.MaxLicenses)
	}
	for i, l := range m.Licenses {
		if l.Name == "" || l.Count < 1 || l.Count > model.MaxFeatureCount {
			return refuse(proto.CodeBadRequest, "--licenses: %d of '%s' is no count of a license", l.Count, l.Name)
		}
		for _, o := range m.Licenses[:i] {
			if o.Name == l.Name {
				return refuse(proto.CodeBadRequest, "--licenses: %s stands twice", l.Name)
			}
		}
	}
	for _, n := range []struct {
		option string
		value  int64
	}{{"--switches", int64(m.Switches)}, {"--switches", m.SwitchWaitS}, {"--sockets-per-node", int64(m.Sockets)},
		{"--cores-per-socket", int64(m.CoresPerSocket)},
		{"--threads-per-core", int64(m.ThreadsPerCore)}, {"--ntasks-per-socket", int64(m.TasksPerSocket)},
		{"--ntasks-per-core", int64(m.TasksPerCore)},
		{"--cpus-per-gpu", int64(m.CPUsPerGPU)}, {"--mem-per-gpu", m.MemPerGPU}} {
		if n.value < 0 {
			return refuse(proto.CodeBadRequest, "%s=%d is negative", n.option, n.value)
		}
	}
	if b := m.Bind; b != nil && max(len(b.GPU), len(b.CPU), len(b.Mem), len(b.Dist), len(b.Hint)) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "--gpu-bind, --cpu-bind, --mem-bind or --distribution is longer than %d bytes",
			proto.MaxFieldBytes)
	}
	if m.SampleS < -1 || m.SampleS > maxSampleS {
		return refuse(proto.CodeBadRequest, "--acctg-freq=task=%d: write 0 to %d seconds", m.SampleS, maxSampleS)
	}
	if err := validIndex(sp); err != nil {
		return err
	}
	for _, g := range m.GPUsPerSocket {
		if g.Name != model.GPUName || g.Count < 1 || g.Count > maxPerGPU || m.Sockets < 1 {
			return refuse(proto.CodeBadRequest, "--gpus-per-socket=%d with --sockets-per-node=%d: write at least 1 of each",
				g.Count, m.Sockets)
		}
	}
	if m.CPUsPerGPU > maxPerGPU || m.TasksPerSocket > maxPerGPU || m.TasksPerCore > maxPerGPU ||
		m.MemPerGPU > maxMemPerGPU {
		return refuse(proto.CodeBadRequest,
			"--cpus-per-gpu, --ntasks-per-socket, --ntasks-per-core or --mem-per-gpu is more than any node has")
	}
	return nil
}

// validIndex checks that a request for GPUs by number also asks for the same count of GPUs per node.
func validIndex(sp *model.Spec) error {
	want := sp.More.GPUIndex
	if want.Empty() {
		return nil
	}
	if want.Max() >= model.MaxGPUIndex {
		return refuse(proto.CodeBadRequest, "--gpu-index: numbers go to %d", model.MaxGPUIndex-1)
	}
	sum := int32(0)
	for i := range sp.Gres {
		if g := &sp.Gres[i]; g.Name == model.GPUName && g.Count > 0 {
			if g.Per != model.PerNode || len(sp.More.GPUsPerSocket) > 0 {
				return refuse(proto.CodeBadRequest,
					"--gpu-index says which GPUs each node gives: leave out --gpus, --gpus-per-task and --gpus-per-socket")
			}
			sum += g.Count
		}
	}
	if int(sum) != want.Count() {
		return refuse(proto.CodeBadRequest, "--gpu-index=%s are %d GPUs on each node, and %d are asked for", want,
			want.Count(), sum)
	}
	return nil
}

// More than any node has, so that products with counts of tasks and GPUs can't overflow.
const (
	maxPerGPU    = 1 << 20
	maxMemPerGPU = 1 << 40 // MiB
	maxSampleS   = 1 << 20 // --acctg-freq
)
