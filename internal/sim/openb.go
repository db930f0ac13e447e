package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Alibaba's openb lists: pods with what they ask for, and the nodes that they run on, in two CSV files.
// Source: Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
// USENIX ATC 2023; github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.

// The columns that are read, by Alibaba's names: of the list of pods, and of the list of nodes.
const (
	podCPU, podMem, podGPUs, podMilli    = "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"
	podCreated, podDeleted, podScheduled = "creation_time", "deletion_time", "scheduled_time"
	podTypes                             = "gpu_spec"
	nodeName, nodeCPU, nodeMem, nodeGPUs = "sn", "cpu_milli", "memory_mib", "gpu"
	nodeModel                            = "model"
)

// wholeGPU is gpu_milli of a pod that does not share.
const wholeGPU = 1000

func isPodCSV(head string) bool {
	return strings.HasPrefix(head, "name,") && strings.Contains(head, ",num_gpu,")
}

func readPods(l *lines) (*Workload, error) {
	w := &Workload{Name: l.file, NodesBeside: true}
	head, _ := l.next()
	t, err := newTable(l, head, ',')
	if err != nil {
		return nil, err
	}
	for _, name := range []string{podCPU, podMem, podGPUs, podMilli, podCreated, podDeleted} {
		if t.has(name) == "" {
			return nil, l.bad("no column %s: a list of pods has name,%s,...,%s,%s", name,
				strings.Join([]string{podCPU, podMem, podGPUs, podMilli}, ","), podCreated, podDeleted)
		}
	}
	shared := 0
	for k := int64(0); ; k++ {
		ok, err := t.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if err := l.room(w); err != nil {
			return nil, err
		}
		p, err := readPod(t)
		if err != nil {
			return nil, err
		}
		if p.cpuMilli > maxUnits*1000 {
			return nil, l.bad("%s is %d: at most %d", podCPU, p.cpuMilli, maxUnits*1000)
		}
		j := Job{ID: k, Submit: p.created, Run: p.deleted - cmp.Or(p.scheduled, p.created),
			CPUs: int32((p.cpuMilli + 999) / 1000), MemMiB: p.memMiB, GPUs: int32(p.gpus), Nodes: 1}
		switch typ := t.text(podTypes); {
		case strings.Contains(typ, "|"):
			w.leave("asks for one of several types of GPUs, which a request can't say")
			continue
		default:
			j.GPUType = typ
		}
		if p.gpus > 0 && p.milli > 0 && p.milli < wholeGPU {
			j.Milli = int32(p.milli)
			shared++
		}
		w.add(j)
	}
	if shared > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("%s pods share a GPU in the trace; here each has one for itself",
			group(int64(shared))))
	}
	return w, nil
}

// pod is a line of the list; times are in seconds.
type pod struct {
	cpuMilli, memMiB, gpus, milli int64
	created, deleted, scheduled   int64 // scheduled 0: at once
}

func readPod(t *table) (p pod, err error) {
	for _, c := range []struct {
		name string
		most int64
		to   *int64
	}{{podCPU, 1 << 40, &p.cpuMilli}, {podMem, 1 << 40, &p.memMiB}, {podGPUs, maxUnits, &p.gpus},
		{podMilli, maxUnits, &p.milli}, {podCreated, 1 << 40, &p.created}, {podDeleted, 1 << 40, &p.deleted},
		{podScheduled, 1 << 40, &p.scheduled}} {
		if *c.to, err = t.number(c.name, c.most); err != nil {
			return p, err
		}
	}
	return p, nil
}

// nodesBeside reads the list of nodes that lies beside a list of pods. Without one the machine must be given.
func nodesBeside(path string, w *Workload) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*node_list*.csv*"))
	if err != nil || len(found) == 0 {
		return nil
	}
	file := found[0]
	for _, f := range found {
		if strings.Contains(f, "gpu_node") {
			file = f
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("open the list of nodes: %w", err)
	}
	defer f.Close()
	r, err := plain(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	l := newLines(file, r)
	head, _ := l.next()
	t, err := newTable(l, head, ',')
	if err != nil {
		return err
	}
	for {
		ok, err := t.next()
		if err != nil {
			return err
		}
		if !ok {
			return l.err()
		}
		k := NodeKind{Name: t.text(nodeName), Type: t.text(nodeModel)}
		var milli, gpus int64
		for _, c := range []struct {
			name string
			most int64
			to   *int64
		}{{nodeCPU, maxUnits, &milli}, {nodeMem, 1 << 40, &k.MemMiB}, {nodeGPUs, maxGPUs, &gpus}} {
			if *c.to, err = t.number(c.name, c.most); err != nil {
				return err
			}
		}
		k.CPUs, k.GPUs = int(milli/1000), int(gpus)
		if k.Name == "" || k.CPUs == 0 {
			return l.bad("a node without a name (%s) or processors (%s)", nodeName, nodeCPU)
		}
		if len(w.Nodes) >= maxNodes {
			return l.bad("more than %d nodes", maxNodes)
		}
		w.Nodes = append(w.Nodes, k)
	}
}
