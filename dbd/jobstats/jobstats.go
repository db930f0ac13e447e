// Package jobstats sums up the usage of a longer job in the format of jobstats: "JS1:" and a
// compressed JSON text, which readers (jobstats, reportseff) expect in AdminComment.
package jobstats

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strconv"

	"gbatch/internal/model"
)

// MaxBytes is the longest summary: a job on too many nodes for it gets none.
const MaxBytes = 1<<16 - 1

const mark = "JS1:"

// Summary gives the summary of a record; nil: it has none.
func Summary(r *model.Record) ([]byte, error) {
	if r.End == 0 || r.Exit.Use == nil || r.ShortForSummary() {
		return nil, nil
	}
	type node struct {
		TotalMemory int64            `json:"total_memory"` // bytes
		UsedMemory  int64            `json:"used_memory"`
		TotalTime   float64          `json:"total_time"` // CPU seconds
		CPUs        int32            `json:"cpus"`
		GPUTotal    map[string]int64 `json:"gpu_total_memory,omitempty"` // bytes, by index
		GPUUsed     map[string]int64 `json:"gpu_used_memory,omitempty"`
		GPUUtil     map[string]int64 `json:"gpu_utilization,omitempty"` // percent
	}
	all := struct {
		Nodes     map[string]node `json:"nodes"`
		TotalTime int64           `json:"total_time"` // seconds
		GPUs      int64           `json:"gpus"`
	}{Nodes: map[string]node{}, TotalTime: r.ElapsedS()}
	for _, g := range r.AllocGres {
		if g.Name == model.GPUName {
			all.GPUs += g.Count
		}
	}
	for i := range r.Exit.Use.Nodes {
		u := &r.Exit.Use.Nodes[i]
		n := node{TotalMemory: u.MemMiB << 20, UsedMemory: u.PeakKB << 10, TotalTime: float64(u.UserMS+u.SysMS) / 1000,
			CPUs: u.CPUs}
		if n.TotalMemory == 0 { // readers divide by it
			n.TotalMemory = n.UsedMemory
		}
		for k := range u.GPUs {
			g := &u.GPUs[k]
			if g.Samples == 0 {
				continue
			}
			if n.GPUTotal == nil {
				n.GPUTotal, n.GPUUsed, n.GPUUtil = map[string]int64{}, map[string]int64{}, map[string]int64{}
			}
			index := strconv.Itoa(int(g.Index))
			n.GPUTotal[index], n.GPUUsed[index] = g.MemMiB<<20, g.MemMaxMiB<<20
			if pct, ok := g.UtilAve(); ok {
				n.GPUUtil[index] = pct
			}
		}
		all.Nodes[u.Node] = n
	}
	text, err := json.Marshal(&all)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if base64.StdEncoding.EncodedLen(packed.Len()) > MaxBytes-len(mark) {
		return []byte(mark + "None"), nil
	}
	return base64.StdEncoding.AppendEncode([]byte(mark), packed.Bytes()), nil
}
