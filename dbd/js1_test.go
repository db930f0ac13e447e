package dbd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// used gives a record a usage with samples of 30 seconds.
func used(r *model.Record) {
	r.Exit.Use = &model.Usage{Nodes: []model.NodeUsage{{Node: "node01", CPUs: 4, MemMiB: 4096, UserMS: 90_000, SysMS: 500,
		PeakKB: 1 << 20, EveryS: 30,
		GPUs: []model.GPUUsage{{Index: 3, Samples: 4, UtilSum: 320, UtilCount: 4, UtilMax: 90, MemMaxMiB: 2, MemMiB: 4}}}}}
}

// TestSummaries: a longer job's usage is kept in jobstats's format, a record that replaces the job's record removes it,
// and a chunk has it if the request asks for it.
func TestSummaries(t *testing.T) {
	d, stop := openTest(t, t.TempDir())
	defer stop()
	mustPut(t, d, 4, rec(1, 1, used), rec(2, 2), rec(3, 3, used, func(r *model.Record) { r.Start = r.End - 59_000 }),
		rec(4, 4, used, running))
	get := func() map[model.JobID]string {
		out := map[model.JobID]string{}
		err := d.queryWith(t.Context(), &proto.AcctRequest{Summaries: true},
			func(records [][]byte, summaries []string) error {
				var chunk proto.RecordsChunk
				if err := proto.Decode(appendSummaries(appendChunk(nil, records), summaries), &chunk); err != nil {
					return err
				}
				for i, r := range chunk.Records {
					out[r.Job] = chunk.Summaries[i]
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := get()
	if len(all) != 4 || all[2] != "" || all[3] != "" || all[4] != "" {
		t.Errorf("summaries %v", all)
	}
	packed, ok := strings.CutPrefix(all[1], "JS1:")
	raw, err := base64.StdEncoding.DecodeString(packed)
	if !ok || err != nil {
		t.Fatalf("%q: %v", all[1], err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	const want = `{"nodes":{"node01":{"total_memory":4294967296,"used_memory":1073741824,"total_time":90.5,"cpus":4,` +
		`"gpu_total_memory":{"3":4194304},"gpu_used_memory":{"3":2097152},"gpu_utilization":{"3":80}}},"total_time":3600,` +
		`"gpus":2}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
	mustPut(t, d, 5, rec(5, 1))
	if all = get(); all[1] != "" {
		t.Errorf("a record without usage keeps the summary %q", all[1])
	}
}
