package seff

import (
	"strings"

	"gbatch/internal/model"
)

// GPUSum is what a step's GPUs did, those that were ever read.
type GPUSum struct {
	Count     int64 // that were read
	Told      int64 // that told their utilization
	UtilAve   int64 // mean over those, percent
	UtilMax   int64 // of any of them at any time, percent
	MemMaxMiB int64 // of the fullest
	MemMiB    int64 // that it has
	EnergyMJ  int64
	MIG       bool // one of them is a MIG instance
}

// GPUs sums up what the GPUs of a job did.
func GPUs(u *model.Usage) GPUSum {
	var s GPUSum
	for i := range u.Nodes {
		for k := range u.Nodes[i].GPUs {
			g := &u.Nodes[i].GPUs[k]
			if g.Samples == 0 {
				continue
			}
			s.Count++
			s.EnergyMJ += g.EnergyMJ
			if g.MemMaxMiB >= s.MemMaxMiB {
				s.MemMaxMiB, s.MemMiB = g.MemMaxMiB, g.MemMiB
			}
			s.MIG = s.MIG || strings.HasPrefix(g.UUID, "MIG-")
			if pct, ok := g.UtilAve(); ok {
				s.Told++
				s.UtilAve += pct
				s.UtilMax = max(s.UtilMax, int64(g.UtilMax))
			}
		}
	}
	if s.Told > 0 {
		s.UtilAve = (s.UtilAve + s.Told/2) / s.Told
	}
	return s
}
