package devcluster_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/walltime"
)

// agreeing is how many requests are compared.
const agreeing = 240

// TestNumbersAgree: the scheduler, gqueue, gcontrol show job and accounting agree on what a pending job asks for.
func TestNumbersAgree(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := devcluster.Start(t,
		devcluster.Options{Nodes: 4, CPUs: 16, MemMiB: 16000, Gres: "gpu:a100:4,fpga:8",
			Conf: "GresTypes=gpu,fpga\nLicenses=matlab:9,ansys:4\n",
			Partitions: `
PartitionName=main Nodes=ALL Default=YES DefMemPerCPU=100 \
TRESBillingWeights="CPU=0.5,Mem=0.25G,GRES/gpu=2,License/matlab=3"
PartitionName=gpus Nodes=ALL JobDefaults=DefCpuPerGPU=3,DefMemPerGPU=700 TRESBillingWeights="CPU=0,GRES/gpu=2.0"
PartitionName=wide Nodes=ALL MinNodes=2 MaxMemPerCPU=400 DefMemPerNode=900
`})
	cl := c.Client()
	defer cl.Close()
	var cfg proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &cfg); err != nil {
		t.Fatal(err)
	}
	parts := map[string]*model.Partition{}
	for _, p := range cfg.Config.Partitions {
		parts[p.Name] = p
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	want := map[string]string{}
	last := ""
	for refused := 0; len(want) < agreeing; {
		sp := randomAsk(rng)
		sp.WorkDir = c.Dir
		var reply proto.SubmitReply
		rq := &proto.SubmitRequest{RequestID: fmt.Sprint(len(want), " ", refused), Script: []byte("#!/bin/sh\n"), Spec: sp}
		if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
			if refused++; refused > 20*agreeing {
				t.Fatalf("most requests are refused, the last with: %v", err)
			}
			continue // no node could ever run it
		}
		p := parts[sp.Partitions[0]]
		r := sched.Resolve(sp, p, &cfg.Config.Params)
		all, _ := r.Least()
		bill := model.BillMicros(all, p.Billing, cfg.Config.Params.Priority.Flags) / model.FactorOne
		last = fmt.Sprint(reply.Job)
		want[last] = asked(all, bill)
	}
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(devcluster.Commands(t), name), args...)
		cmd.Env, cmd.Stderr = append(c.Env(), "PATH="+os.Getenv("PATH")), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return string(out)
	}
	compare := func(who string, got map[string]string) {
		if len(got) != len(want) {
			t.Errorf("%s shows %d jobs, want %d", who, len(got), len(want))
		}
		wrong := 0
		for id, w := range want {
			if inQueueOrder(got[id]) != w && wrong < 5 {
				wrong++
				t.Errorf("job %s asks for %s; %s: %s\n%s", id, w, who, got[id], run("gcontrol", "show", "job", id))
			}
		}
	}
	queue := map[string]string{}
	for line := range strings.Lines(run("gqueue", "-h", "-O", "JobID: ,tres-alloc: ,NumCPUs: ,NumNodes:")) {
		f := strings.Fields(line)
		if queue[f[0]] = f[1]; !strings.HasPrefix(f[1], "cpu="+f[2]+",") || !strings.Contains(f[1], ",node="+f[3]+",") {
			t.Errorf("gqueue has %s CPUs and %s nodes of job %s, and %s", f[2], f[3], f[0], f[1])
		}
	}
	compare("gqueue", queue)
	shown := map[string]string{}
	for line := range strings.Lines(run("gcontrol", "-o", "show", "job")) {
		shown[word(line, "JobId=")] = word(line, " ReqTRES=")
		if tres, cpus, nodes := word(line, " ReqTRES="), word(line, "NumCPUs="),
			word(line, "NumNodes="); !strings.HasPrefix(tres, "cpu="+cpus+",") ||
			!strings.Contains(tres, ",node="+strings.Split(nodes, "-")[0]+",") {
			t.Errorf("gcontrol has %s CPUs and %s nodes, and %s", cpus, nodes, tres)
		}
	}
	compare("gcontrol show job", shown)
	kept := map[string]string{}
	ids := strings.Join(slices.Collect(maps.Keys(want)), ",") // held jobs, never eligible: shown where they are asked for
	c.Wait("the records of all jobs", func() error {
		clear(kept)
		for line := range strings.Lines(run("gacct", "-X", "-n", "-P", "-j", ids, "-o", "JobID,ReqTRES,ReqCPUS")) {
			f := strings.Split(strings.TrimSpace(line), "|")
			kept[f[0]] = inQueueOrder(f[1]) // sacct has the order of the alphabet
			if !strings.HasPrefix(kept[f[0]], "cpu="+f[2]+",") {
				return fmt.Errorf("gacct has %s CPUs of job %s, and %s", f[2], f[0], f[1])
			}
		}
		if kept[last] == "" {
			return fmt.Errorf("%d jobs", len(kept))
		}
		return nil
	})
	compare("gacct", kept)
}

// word gives what stands behind a key in a line.
func word(line, key string) string {
	_, rest, _ := strings.Cut(line, key)
	rest, _, _ = strings.Cut(rest, " ")
	return strings.TrimSpace(rest)
}

// asked writes resources as the queue has them: cpu, mem, node, billing, then generic resources by name.
func asked(all []model.TRESCount, bill int64) string {
	var words []string
	for _, c := range all {
		n := fmt.Sprint(c.Count)
		if c.TRES == "mem" {
			n = walltime.FormatMem(c.Count)
		}
		words = append(words, c.TRES+"="+n)
	}
	return inQueueOrder(strings.Join(append(words, fmt.Sprintf("billing=%d", bill)), ","))
}

// inQueueOrder sorts a list: as the queue has it, generic resources by name.
func inQueueOrder(list string) string {
	var out, gres []string
	by := map[string]string{}
	for w := range strings.SplitSeq(list, ",") {
		name, _, _ := strings.Cut(w, "=")
		if strings.HasPrefix(name, "gres/") || strings.HasPrefix(name, "license/") {
			gres = append(gres, w)
		}
		by[name] = w
	}
	for _, name := range []string{"cpu", "mem", "node", "billing"} {
		if by[name] != "" {
			out = append(out, by[name])
		}
	}
	slices.Sort(gres)
	return strings.Join(append(out, gres...), ",")
}

// randomAsk makes a held job's request as the commands would.
func randomAsk(rng *rand.Rand) *model.Spec {
	n := func(most int) int32 { return int32(rng.IntN(most)) }
	one := func(percent int) bool { return rng.IntN(100) < percent }
	sp := &model.Spec{Name: "a", HoldReq: true, StdOut: "/dev/null", LimitS: 60,
		Partitions: []string{[]string{"main", "gpus", "wide"}[n(3)]}}
	if one(40) {
		sp.MinNodes = 1 + n(4)
		sp.MaxNodes = sp.MinNodes + n(2)*n(3)
	}
	if one(40) {
		sp.Tasks = 1 + n(12)
	}
	if one(30) {
		sp.TasksPerNode = 1 + n(5)
	}
	if one(40) {
		sp.CPUsPerTask = 1 + n(4)
	}
	if one(20) {
		sp.MinCPUs = 1 + n(12)
	}
	sp.Overcommit = one(5)
	switch n(6) {
	case 0:
		sp.MemPerNode = int64(100 + n(3000))
	case 1:
		sp.MemPerCPU = int64(50 + n(900))
	case 2:
		if one(30) {
			sp.MemPerNode = model.WholeMem
		}
	}
	if one(60) {
		typ := []string{"", "a100"}[n(2)]
		sp.Gres = []model.GresReq{{Name: "gpu", Type: typ, Count: 1 + n(4), Per: model.GresPer(n(3))}}
		more := model.Needs{}
		if sp.CPUsPerTask == 0 && one(50) {
			more.CPUsPerGPU = 1 + n(6)
		}
		if sp.MemPerCPU == 0 && sp.MemPerNode == 0 && one(30) {
			more.MemPerGPU = int64(100 + n(900))
		}
		if more.CPUsPerGPU > 0 || more.MemPerGPU > 0 {
			sp.More = &more
		}
	}
	if one(15) {
		sp.Gres = append([]model.GresReq{{Name: "fpga", Count: 1 + n(4), Per: model.GresPer(n(3))}}, sp.Gres...)
	}
	if one(30) {
		if sp.More == nil {
			sp.More = &model.Needs{}
		}
		sp.More.Licenses = []model.LicenseCount{{Name: "matlab", Count: int64(1 + n(9))}, {Name: "ansys", Count: 1}}[:1+n(2)]
		sp.More.AnyLicense = one(30)
	}
	return sp
}
