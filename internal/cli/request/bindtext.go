package request

import (
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/jobtext"
	"gbatch/internal/proto"
)

// bindtext.go parses --cpu-bind, --gpu-bind, --mem-bind and --distribution. grun makes a request of the result; gsubmit
// only checks the text and passes it on to the job's steps.

func badBind(option, v, ways string) error {
	return &getopt.TextError{Text: "Invalid --" + option + " specification: '" + v + "'; write " + ways}
}

// bindWords splits off the flags before the kind of binding, or behind one that has no list; a list keeps its commas.
func bindWords(v string, flags map[string]func()) (way, list string) {
	for {
		word, rest, more := strings.Cut(v, ",")
		if f := flags[strings.ToLower(word)]; f != nil {
			f()
			if v = rest; more {
				continue
			}
			return "", ""
		}
		var listed bool
		if way, list, listed = strings.Cut(v, ":"); !listed {
			words := strings.Split(strings.ToLower(v), ",")
			for len(words) > 1 && flags[words[len(words)-1]] != nil {
				flags[words[len(words)-1]]()
				words = words[:len(words)-1]
			}
			way = strings.Join(words, ",")
		}
		return strings.ToLower(way), list
	}
}

// bindListText parses lists such as 0,1,2*4.
func bindListText(list string, mask bool) ([]string, bool) {
	var out []string
	for _, w := range strings.Split(list, ",") {
		entry, times, repeated := strings.Cut(w, "*")
		n := 1
		if repeated {
			k, err := strconv.Atoi(times)
			if err != nil || k < 1 || k > proto.MaxStepTasks {
				return nil, false
			}
			n = k
		}
		base, text := 0, entry
		if mask {
			base, text = 16, strings.TrimPrefix(strings.ToLower(entry), "0x")
		}
		for i := 0; i < len(text); i += 15 { // masks may be longer than 64 bits
			if _, err := strconv.ParseUint(text[i:min(i+15, len(text))], base, 64); err != nil {
				return nil, false
			}
		}
		if text == "" || len(out)+n > proto.MaxStepTasks {
			return nil, false
		}
		for range n {
			out = append(out, entry)
		}
	}
	return out, true
}

const cpuWays = `--cpu-bind=
    q[uiet]           bind without a word (the default)
    v[erbose]         print what each task is bound to
    no[ne]            don't bind tasks
    rank              task N to the Nth CPU
    rank_ldom         like rank, from one NUMA node to the next
    threads           to hardware threads
    cores             to cores
    sockets           to sockets
    ldoms             to NUMA nodes
    map_cpu:LIST      to these CPUs, one for each task
    mask_cpu:LIST     to these masks of CPUs, one for each task
    help              print this
`

const memWays = `--mem-bind=
    q[uiet]           bind without a word (the default)
    v[erbose]         print what each task is bound to
    prefer            other memory may be used when that is full
    nosort, sort      accepted, without effect
    no[ne]            don't bind memory (the default)
    rank              task N to the Nth NUMA node
    local             to the NUMA node of the task's CPU
    map_mem:LIST      to these NUMA nodes, one for each task
    mask_mem:LIST     to these masks of NUMA nodes, one for each task
    help              print this
`

// SetCPUBind gives the setter of --cpu-bind.
func SetCPUBind(b *proto.StepBind) func(string) error {
	return func(v string) error {
		const ways = "[verbose,] none, rank, cores, threads, sockets, ldoms, map_cpu:LIST or mask_cpu:LIST"
		b.CPUVerbose, b.CPUQuiet = false, false
		way, list := bindWords(v,
			map[string]func(){"v": func() { b.CPUVerbose = true }, "verbose": func() { b.CPUVerbose = true },
				"q": func() { b.CPUQuiet = true }, "quiet": func() { b.CPUQuiet = true }})
		mask := way == "mask_cpu"
		switch way {
		case "help":
			return &env.Ways{Text: cpuWays}
		case "", "auto":
			b.CPU = proto.BindAuto
		case "no", "none":
			b.CPU = proto.BindNone
		case "yes":
			b.CPU = proto.BindCores
		case "rank":
			b.CPU = proto.BindRank
		case "core", "cores":
			b.CPU = proto.BindCores
		case "thread", "threads":
			b.CPU = proto.BindThreads
		case "socket", "sockets":
			b.CPU = proto.BindSockets
		case "ldom", "ldoms":
			b.CPU = proto.BindLdoms
		case "rank_ldom":
			b.CPU = proto.BindRankLdom
		case "map_cpu", "mask_cpu":
			if b.CPU = proto.BindMap; mask {
				b.CPU = proto.BindMask
			}
			var ok bool
			if b.CPUList, ok = bindListText(list, mask); !ok {
				return badBind("cpu-bind", v, ways)
			}
			return nil
		default:
			return badBind("cpu-bind", v, ways)
		}
		if list != "" {
			return badBind("cpu-bind", v, ways)
		}
		return nil
	}
}

func SetGPUBind(b *proto.StepBind) func(string) error {
	return func(v string) error {
		const ways = "[verbose,] closest, none, single:N, per_task:N, map_gpu:LIST or mask_gpu:LIST"
		b.GPUVerbose = false
		way, list := bindWords(v,
			map[string]func(){"v": func() { b.GPUVerbose = true }, "verbose": func() { b.GPUVerbose = true }, "q": func() {},
				"quiet": func() {}})
		switch way {
		case "":
			if b.GPU = proto.BindAuto; v == "" {
				return badBind("gpu-bind", v, ways)
			}
		case "none":
			b.GPU = proto.BindNone
		case "closest":
			b.GPU = proto.BindClosest
		case "single", "per_task":
			if b.GPU = proto.BindPerTask; way == "single" {
				b.GPU = proto.BindSingle
			}
			n, err := strconv.Atoi(list)
			if err != nil || n < 1 || n > 1024 {
				return badBind("gpu-bind", v, ways)
			}
			b.GPUCount = int32(n)
			return nil
		case "map_gpu", "map", "mask_gpu", "mask":
			mask := strings.HasPrefix(way, "mask")
			if b.GPU = proto.BindMap; mask {
				b.GPU = proto.BindMask
			}
			var ok bool
			if b.GPUList, ok = bindListText(list, mask); !ok {
				return badBind("gpu-bind", v, ways)
			}
			return nil
		default:
			return badBind("gpu-bind", v, ways)
		}
		if list != "" {
			return badBind("gpu-bind", v, ways)
		}
		return nil
	}
}

// SetTRESBind reads gres/gpu:WAY.
func SetTRESBind(b *proto.StepBind) func(string) error {
	return func(v string) error {
		rest, ok := strings.CutPrefix(v, jobtext.TRESGPU)
		if !ok {
			return badBind("tres-bind", v, "gres/gpu: and what --gpu-bind takes, such as gres/gpu:single:1")
		}
		return SetGPUBind(b)(rest)
	}
}

func SetMemBind(b *proto.StepBind) func(string) error {
	return func(v string) error {
		const ways = "[verbose,][prefer,] none, local, rank, map_mem:LIST or mask_mem:LIST"
		b.MemVerbose, b.MemPrefer = false, false
		verbose, prefer := func() { b.MemVerbose = true }, func() { b.MemPrefer = true }
		way, list := bindWords(v, map[string]func(){"v": verbose, "verbose": verbose, "q": func() {}, "quiet": func() {},
			"p": prefer, "prefer": prefer, "nosort": func() {}, "sort": func() {}})
		switch way {
		case "":
			b.Mem = proto.BindAuto
		case "help":
			return &env.Ways{Text: memWays}
		case "no", "none":
			b.Mem = proto.BindNone
		case "local":
			b.Mem = proto.BindLocal
		case "rank":
			b.Mem = proto.BindRank
		case "map_mem", "mask_mem":
			mask := way == "mask_mem"
			if b.Mem = proto.BindMap; mask {
				b.Mem = proto.BindMask
			}
			var ok bool
			if b.MemList, ok = bindListText(list, mask); !ok {
				return badBind("mem-bind", v, ways)
			}
			return nil
		default:
			return badBind("mem-bind", v, ways)
		}
		if list != "" {
			return badBind("mem-bind", v, ways)
		}
		return nil
	}
}

// SetDistribution reads the distribution of tasks over nodes, sockets and cores: block:cyclic, plane=4, arbitrary; then
// ,pack or ,nopack. planeSize is the size of a plane without one, as in SLURM_DISTRIBUTION.
func SetDistribution(n *proto.StepNeed, b *proto.StepBind, planeSize string) func(string) error {
	return func(v string) error {
		const ways = "block, cyclic, plane=N or arbitrary, then :block, :cyclic or :fcyclic for the sockets of a node, and " +
			"the same for their cores, then ,pack or ,nopack"
		text, flags, has := strings.Cut(strings.ToLower(v), ",")
		if has && (text == "" || flags == "") {
			return badBind("distribution", v, ways)
		}
		n.Pack, n.NoPack = false, false
		for _, flag := range strings.FieldsFunc(flags, func(r rune) bool { return r == ',' }) {
			switch flag {
			case "pack":
				n.Pack, n.NoPack = true, false
			case "nopack":
				n.Pack, n.NoPack = false, true
			default:
				return badBind("distribution", v, ways)
			}
		}
		switch text {
		case "pack", "nopack": // alone: the usual distribution
			n.Pack, n.NoPack, text = text == "pack", text == "nopack", ""
		}
		parts := strings.Split(text, ":")
		first, size, plane := strings.Cut(parts[0], "=")
		n.Dist, n.Plane = proto.DistDefault, 0
		switch first {
		case "":
		case "*", "block":
			n.Dist = proto.DistBlock
		case "cyclic":
			n.Dist = proto.DistCyclic
		case "arbitrary":
			n.Dist = proto.DistArbitrary
		case "plane":
			if !plane {
				size = planeSize
			}
			k, err := strconv.Atoi(size)
			if err != nil || k < 1 || k > proto.MaxStepTasks {
				return badBind("distribution", v, ways)
			}
			n.Dist, n.Plane = proto.DistPlane, int32(k)
		default:
			return badBind("distribution", v, ways)
		}
		if len(parts) > 3 || plane && first != "plane" {
			return badBind("distribution", v, ways)
		}
		for i := 1; i < len(parts); i++ { // what is left to Slurm: cyclic over sockets, and over cores as over sockets
			if parts[i] == "*" {
				parts[i] = [...]string{1: "cyclic", 2: parts[1]}[i]
			}
		}
		parts = append(parts, "*", "*")
		var okSockets, okCores bool
		b.Cores, okSockets = distLevels[parts[1]]
		if b.Threads, okCores = distLevels[parts[2]]; !okSockets || !okCores {
			return badBind("distribution", v, ways)
		}
		return nil
	}
}

// distLevels are the distributions within a node.
var distLevels = map[string]uint8{"*": proto.DistDefault, "block": proto.DistBlock, "cyclic": proto.DistCyclic,
	"fcyclic": proto.DistFCyclic}
