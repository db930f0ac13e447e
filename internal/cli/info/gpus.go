package info

import (
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// gpus.go is ginfo --gpus: a line for each GPU, and for each MIG instance that jobs can get.

// printGPUs prints the GPUs of the requested nodes.
func (i *info) printGPUs(t *jobtext.NodeTable, cluster string, now model.Time) error {
	var rows []jobtext.GPURow
	seen := map[string]bool{}
	for _, p := range t.Parts {
		for _, name := range p.Nodes {
			if n := t.Nodes[name]; n != nil && !seen[name] && i.pick(n) {
				seen[name] = true
				rows = append(rows, jobtext.GPURows(n)...)
			}
		}
	}
	if i.json != "" {
		return i.printGPUsJSON(rows, cluster, now)
	}
	_, err := i.Stdout.Write(jobtext.GPUTable(rows, !i.noHeader))
	return err
}

func (i *info) printGPUsJSON(rows []jobtext.GPURow, cluster string, now model.Time) error {
	j := i.JSONFrame("gpus", i.json)
	fields := jobtext.GPUJSON()
	for k := range rows {
		slurmjson.Write(j, "", fields, &rows[k])
		j.Flush(false)
	}
	return i.JSONFinish(j, cluster, now)
}
