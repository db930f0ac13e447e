package request

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// submitindex.go is --gpu-index and --gpu-idle.

// gpuIndex reads the numbers of GPUs.
func (s *Submission) gpuIndex(v string) error {
	list, err := hostlist.ParseIndexes(v)
	if err != nil || len(list) == 0 || slices.Max(list) >= model.MaxGPUIndex {
		return &getopt.TextError{
			Text: "Invalid --gpu-index specification: '" + v +
				"'; write the numbers of GPUs as ginfo -G shows them, such as 0,1 or 2-3"}
	}
	s.More.GPUIndex = nil
	for _, k := range list {
		s.More.GPUIndex = s.More.GPUIndex.With(k)
	}
	return nil
}

func (s *Submission) gpuIdle(v string) error {
	switch strings.ToLower(v) {
	case "on":
		s.More.NeverIdle = false
	case "off":
		s.More.NeverIdle = true
	default:
		return &getopt.TextError{
			Text: "Invalid --gpu-idle specification: '" + v + "'; write off, or on (as the partition's GpuIdlePolicy says)"}
	}
	return nil
}

// settleIndex counts GPUs that are asked for by number.
func (s *Submission) settleIndex() error {
	m := &s.More
	if m.GPUIndex.Empty() {
		return nil
	}
	sum := int32(0)
	for _, g := range s.Spec.Gres {
		if g.Name != model.GPUName || g.Count == 0 {
			continue
		}
		if g.Per != model.PerNode || len(m.GPUsPerSocket) > 0 {
			return fmt.Errorf("--gpu-index says which GPUs each node gives: leave out --gpus, --gpus-per-task and " +
				"--gpus-per-socket")
		}
		sum += g.Count
	}
	switch n := int32(m.GPUIndex.Count()); {
	case sum == 0:
		s.Spec.Gres = append(s.Spec.Gres, model.GresReq{Name: model.GPUName, Count: n})
	case sum != n:
		return fmt.Errorf("--gpu-index=%s are %d GPUs on each node; leave out --gpus-per-node and --gres=gpu, "+
			"or write %d there", m.GPUIndex, n, n)
	}
	return nil
}
