package request

import (
	"slices"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// gpuindex.go has the options that choose GPUs: --gpu-index and --gpu-idle.

// gpuIndex reads the indexes of GPUs.
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
