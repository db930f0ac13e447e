package info

import (
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// printJSON prints one object for each node in "nodes"; in newer versions of the format, one for each node and
// partition in "sinfo".
func (i *info) printJSON(t *jobtext.NodeTable, cluster string, now model.Time) error {
	j := i.JSONFrame("nodes", i.json)
	fields := jobtext.NodeJSON()
	seen := map[string]bool{}
	for _, p := range t.Parts {
		for _, name := range p.Nodes {
			if n := t.Nodes[name]; n != nil && !seen[name] && i.pick(n) {
				seen[name] = true
				slurmjson.Write(j, "", fields, &jobtext.NodeOf{NodeInfo: n, Cluster: cluster})
				j.Flush(false)
			}
		}
	}
	if !j.Old {
		j.Close(']')
		j.Open("sinfo", '[')
		fields := jobtext.SinfoJSON()
		for k, p := range t.Parts {
			for _, name := range p.Nodes {
				if n := t.Nodes[name]; n != nil && i.pick(n) {
					slurmjson.Write(j, "", fields, &jobtext.NodeOf{NodeInfo: n, Cluster: cluster, Part: p,
						PartCPUs: i.partCPUs[k]})
					j.Flush(false)
				}
			}
		}
	}
	return i.JSONFinish(j, cluster, now)
}
