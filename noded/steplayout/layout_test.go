package steplayout

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestLayout replays testdata/layout.txt: a job line gives what the job has, a step line asks for a step, an end line
// ends one. The answer follows each step, indented; -rewrite writes it anew.
//
//	job n1:cpus=4,gpus=2,mem=1000 n2:cpus=4
//	step tasks=2 nodes=2 cpus=1 pernode=1 gpus=1 mem=100 exact overlap on=n2 plane=2 cyclic gpuspernode=1
//	end 0
func TestLayout(t *testing.T) {
	text, err := os.ReadFile("testdata/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var job *Job
	var held []Holding
	next := int32(0)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "    ") {
			continue // an answer
		}
		out.WriteString(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "job":
			job, held, next = jobOf(t, words[1:]), nil, 0
		case words[0] == "end":
			for i := range held {
				if fmt.Sprint(held[i].ID) == words[1] {
					held = append(held[:i:i], held[i+1:]...)
					break
				}
			}
		case words[0] == "step":
			need := needOf(t, words[1:])
			nodes, err := Layout(job, held, nil, need)
			var busy *BusyError
			switch {
			case errors.As(err, &busy):
				fmt.Fprintf(&out, "    waits: %v\n", err)
				continue
			case err != nil:
				fmt.Fprintf(&out, "    never: %v\n", err)
				continue
			}
			fmt.Fprintf(&out, "    step %d\n", next)
			for i := range nodes {
				fmt.Fprintf(&out, "    %s\n", describe(&nodes[i]))
			}
			if !need.Overlap {
				held = append(held, Holding{ID: next, Nodes: nodes})
			}
			next++
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	golden.Compare(t, "testdata/layout.txt", []byte(out.String()))
}

func describe(n *proto.StepNode) string {
	text := fmt.Sprintf("%s tasks %v cpus %s", n.Node, n.Ranks, n.CPUs)
	if n.MemMiB > 0 {
		text += fmt.Sprintf(" mem %d", n.MemMiB)
	}
	for _, g := range n.Gres {
		text += fmt.Sprintf(" %s %s", g.Name, g.Index)
	}
	return text
}

func number(t *testing.T, word string) (key string, n int) {
	t.Helper()
	key, value, _ := strings.Cut(word, "=")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	return key, n
}

func jobOf(t *testing.T, words []string) *Job {
	t.Helper()
	j := &Job{ID: 7, Spec: &model.Spec{}, Alloc: &model.Alloc{}}
	for _, w := range words {
		name, list, _ := strings.Cut(w, ":")
		n := model.NodeAlloc{Node: name, Tasks: 1}
		for item := range strings.SplitSeq(list, ",") {
			switch key, k := number(t, item); key {
			case "cpus":
				n.CPUs = model.UpTo(k)
			case "gpus":
				n.Gres = []model.GresAlloc{{Name: "gpu", Index: model.UpTo(k)}}
			case "mem":
				n.MemMiB = int64(k)
			default:
				t.Fatalf("what is %q?", item)
			}
		}
		j.Alloc.Nodes = append(j.Alloc.Nodes, n)
	}
	return j
}

func needOf(t *testing.T, words []string) *proto.StepNeed {
	t.Helper()
	need := &proto.StepNeed{}
	for _, w := range words {
		switch {
		case w == "exact":
			need.Exact = true
			continue
		case w == "pack":
			need.Pack = true
			continue
		case w == "fill":
			need.Fill = true
			continue
		case w == "overlap":
			need.Overlap = true
			continue
		case w == "cyclic":
			need.Dist = proto.DistCyclic
			continue
		case w == "overcommit":
			need.Overcommit = true
			continue
		case strings.HasPrefix(w, "on="):
			need.Nodes = strings.Split(w[3:], ",")
			continue
		}
		switch key, k := number(t, w); key {
		case "tasks":
			need.Tasks = int32(k)
		case "nodes":
			need.MinNodes, need.MaxNodes = int32(k), int32(k)
		case "cpus":
			need.CPUsPerTask = int32(k)
		case "pernode":
			need.TasksPerNode = int32(k)
		case "mem":
			need.MemPerNode = int64(k)
		case "plane":
			need.Dist, need.Plane = proto.DistPlane, int32(k)
		case "gpus":
			need.Gres = append(need.Gres, model.GresReq{Name: "gpu", Count: int32(k), Per: model.PerJob})
		case "gpuspernode":
			need.Gres = append(need.Gres, model.GresReq{Name: "gpu", Count: int32(k), Per: model.PerNode})
		case "gpuspertask":
			need.Gres = append(need.Gres, model.GresReq{Name: "gpu", Count: int32(k), Per: model.PerTask})
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return need
}

// TestLayoutTypes: a step gets units of the type that it names, in whatever letters, and remote ones only by their
// name; one that names none gets each of the job's.
func TestLayoutTypes(t *testing.T) {
	job := &Job{ID: 1, Spec: &model.Spec{}, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(4),
		Tasks: 4, Gres: []model.GresAlloc{
			{Name: model.GPUName, Type: "a100", Index: model.UpTo(2)},
			{Name: model.GPUName, Type: model.RemoteType, Index: model.UpTo(4).Minus(model.UpTo(2))}}}}}}
	for _, c := range []struct {
		typ  string
		n    int32
		want string // types and numbers; "": refused
	}{
		{"A100", 2, "a100 2"}, {"a100", 3, ""}, {"", 2, "a100 2"}, {"", 3, ""},
		{strings.ToUpper(model.RemoteType), 1, model.RemoteType + " 1"},
		{"all", 0, "a100 2 " + model.RemoteType + " 2"},
	} {
		need := &proto.StepNeed{Tasks: 1, MinNodes: 1, MaxNodes: 1}
		if c.typ != "all" {
			need.Gres = []model.GresReq{{Name: model.GPUName, Type: c.typ, Count: c.n, Per: model.PerNode}}
		}
		var got []string
		nodes, err := Layout(job, nil, nil, need)
		for i := range nodes {
			for _, g := range nodes[i].Gres {
				got = append(got, g.Type, strconv.Itoa(g.Index.Count()))
			}
		}
		if text := strings.Join(got, " "); text != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%d of %q: %q, %v", c.n, c.typ, text, err)
		}
	}
}
