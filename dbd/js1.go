package dbd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
)

// js1.go keeps a summary of each longer job's usage in the format of jobstats: "JS1:" and a compressed JSON text, which
// readers (jobstats, reportseff) expect in AdminComment. It has a bucket of its own beside the records, because
// AdminComment belongs to administrators: commands show the summary if it is empty.
//
//	js1        ref                                  -> payload, of ended jobs with a usage that are not short

var keyJS1 = []byte("js1")

// js1Text gives the summary of a record, "" if it has none.
func js1Text(r *model.Record) ([]byte, error) {
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
	if base64.StdEncoding.EncodedLen(packed.Len()) > maxSummary-len("JS1:") {
		return []byte("JS1:None"), nil
	}
	return base64.StdEncoding.AppendEncode([]byte("JS1:"), packed.Bytes()), nil
}

// js1In gives a shelf's bucket of summaries, and creates it if it is missing.
func js1In(tx *bolt.Tx, s *shelf) (*bolt.Bucket, error) {
	if s.js1 != nil {
		return s.js1, nil
	}
	parent := tx.Bucket(keyLive)
	if s.name != liveShelf {
		parent = tx.Bucket(keyDone).Bucket([]byte(s.name))
	}
	var err error
	s.js1, err = parent.CreateBucketIfNotExists(keyJS1)
	return s.js1, err
}
