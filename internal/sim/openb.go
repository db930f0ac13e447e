package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Alibaba's openb lists: pods with what they ask for, and the nodes that they run on, in two CSV files.
// Source: Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
// USENIX ATC 2023; github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.

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
	for _, name := range []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time"} {
		if t.has(name) == "" {
			return nil, l.bad("no column %s: a list of pods has "+
				"name,cpu_milli,memory_mib,num_gpu,gpu_milli,...,creation_time,deletion_time", name)
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
		var n [7]int64
		for i, name := range []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time",
			"scheduled_time"} {
			most := int64(maxUnits)
			if i >= 4 || i <= 1 {
				most = 1 << 40
			}
			if n[i], err = t.number(name, most); err != nil {
				return nil, err
			}
		}
		if n[0] > maxUnits*1000 {
			return nil, l.bad("cpu_milli is %d: at most %d", n[0], maxUnits*1000)
		}
		begun := n[6]
		if begun == 0 {
			begun = n[4]
		}
		j := Job{ID: k, Submit: n[4], Run: n[5] - begun, CPUs: int32((n[0] + 999) / 1000), MemMiB: n[1], GPUs: int32(n[2]),
			Nodes: 1}
		switch typ := t.text("gpu_spec"); {
		case strings.Contains(typ, "|"):
			w.leave("asks for one of several types of GPUs, which a request can't say")
			continue
		default:
			j.GPUType = typ
		}
		if n[2] > 0 && n[3] > 0 && n[3] < wholeGPU {
			j.Milli = int32(n[3])
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
		var n [3]int64
		for i, name := range []string{"cpu_milli", "memory_mib", "gpu"} {
			if n[i], err = t.number(name, []int64{maxUnits, 1 << 40, maxGPUs}[i]); err != nil {
				return err
			}
		}
		k := NodeKind{Name: t.text("sn"), CPUs: int(n[0] / 1000), MemMiB: n[1], GPUs: int(n[2]), Type: t.text("model")}
		if k.Name == "" || k.CPUs == 0 {
			return l.bad("a node without a name (sn) or processors (cpu_milli)")
		}
		if len(w.Nodes) >= maxNodes {
			return l.bad("more than %d nodes", maxNodes)
		}
		w.Nodes = append(w.Nodes, k)
	}
}
