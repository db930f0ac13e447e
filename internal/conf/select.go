package conf

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Unit is the unit in which CPUs are given to jobs.
type Unit uint8

// The units of CR_CPU, CR_Core, CR_Socket and select/linear.
const (
	UnitCPU Unit = iota
	UnitCore
	UnitSocket
	UnitNode
)

func (u Unit) String() string { return [...]string{"cpu", "core", "socket", "node"}[u] }

// Select is SelectType with its parameters.
type Select struct {
	Type            string   // select/cons_tres or select/linear
	Params          []string // as scontrol shows them
	Unit            Unit
	Memory          bool // memory is given out, and a job without --mem gets its default
	OneTaskPerCore  bool
	LLN             bool // least loaded nodes first
	PackNodes       bool
	BlockDistCores  bool
	EnforceGresBind bool
}

var selectTypes = []string{"select/cons_tres", "select/cons_res", "select/linear"}

func readSelectType(c *Config, v string) fault {
	t, f := readWord(v, selectTypes)
	if f.bad() {
		f.want = "select/cons_tres"
		return f
	}
	if t == "select/cons_res" {
		t = "select/cons_tres"
	}
	c.Select.Type = t
	return fault{}
}

func remarkSelectType(_ *Config, v string) (text, hint string) {
	if sameWord(v, "select/cons_res") {
		return "SelectType=select/cons_res is taken as select/cons_tres, which replaced it",
			"write SelectType=select/cons_tres"
	}
	return "", ""
}

// selectParams are the words of SelectTypeParameters, in scontrol's spelling.
var selectParams = []string{
	"CR_CPU", "CR_CPU_MEMORY", "CR_CORE", "CR_CORE_MEMORY", "CR_SOCKET", "CR_SOCKET_MEMORY", "CR_MEMORY",
	"CR_ONE_TASK_PER_CORE", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_LLN", "CR_PACK_NODES", "ENFORCE_BINDING_GRES",
	"OTHER_CONS_RES", "OTHER_CONS_TRES", "LL_SHARED_GRES", "MULTIPLE_SHARING_GRES_PJ", "ONE_TASK_PER_SHARING_GRES",
	"NONE",
}

// readSelectParams reads SelectTypeParameters of the cluster.
func readSelectParams(c *Config, v string) fault {
	words, f := readWords(v, selectParams)
	if f.bad() {
		return f
	}
	sel := Select{Type: c.Select.Type, Params: words, Unit: UnitCore}
	units := 0
	for _, w := range words {
		switch {
		case strings.HasPrefix(w, "CR_CPU"):
			sel.Unit, units = UnitCPU, units+1
		case w == "CR_CORE" || w == "CR_CORE_MEMORY":
			sel.Unit, units = UnitCore, units+1
		case strings.HasPrefix(w, "CR_SOCKET"):
			sel.Unit, units = UnitSocket, units+1
		}
		sel.Memory = sel.Memory || strings.HasSuffix(w, "_MEMORY")
	}
	if units > 1 {
		return fault{shown(v) + " names two units of resources", "CR_Core_Memory"}
	}
	if sel.Unit == UnitCPU && slices.Contains(words, "CR_ONE_TASK_PER_CORE") {
		return fault{"CR_ONE_TASK_PER_CORE needs whole cores, as in Slurm", "CR_Core_Memory,CR_ONE_TASK_PER_CORE"}
	}
	sel.OneTaskPerCore = slices.Contains(words, "CR_ONE_TASK_PER_CORE")
	sel.LLN = slices.Contains(words, "CR_LLN")
	sel.PackNodes = slices.Contains(words, "CR_PACK_NODES")
	sel.BlockDistCores = slices.Contains(words, "CR_CORE_DEFAULT_DIST_BLOCK")
	sel.EnforceGresBind = slices.Contains(words, "ENFORCE_BINDING_GRES")
	c.Select = sel
	return fault{}
}

// cpuUnit gives the unit in which a partition's jobs get CPUs.
func (p *PartitionDef) cpuUnit() model.CPUUnit {
	switch {
	case strings.HasPrefix(p.SelectTypeParameters, "CR_CORE"):
		return model.CPUUnitCore
	case strings.HasPrefix(p.SelectTypeParameters, "CR_SOCKET"):
		return model.CPUUnitSocket
	}
	return model.CPUUnitDefault
}

// unitFault says what of a partition's SelectTypeParameters can't be done, and what to do; "": nothing. unit and memory
// are what the cluster gives out.
func (p *PartitionDef) unitFault(unit Unit, memory bool) (text, hint string) {
	const own = "its SelectTypeParameters have no effect"
	switch {
	case p.SelectTypeParameters == "":
	case unit == UnitCPU:
		return own + ", as the cluster's are CR_CPU: they count where these are CR_Core or CR_Socket",
			"write SelectTypeParameters=CR_Core_Memory for the cluster"
	case unit == UnitNode:
		return own + " with SelectType=select/linear", "write SelectType=select/cons_tres"
	case strings.HasSuffix(p.SelectTypeParameters, "_MEMORY") != memory:
		word := "CR_Core"
		if p.cpuUnit() == model.CPUUnitSocket {
			word = "CR_Socket"
		}
		if memory {
			word += "_Memory"
		}
		return "memory is given out as in the rest of the cluster, not as its SelectTypeParameters say",
			"write SelectTypeParameters=" + word
	}
	return "", ""
}

func remarkSelectParams(_ *Config, v string) (text, hint string) {
	switch strings.ToUpper(v) {
	case "OTHER_CONS_RES", "OTHER_CONS_TRES":
		return v + " belongs to Cray systems and has no meaning here", "remove it"
	case "LL_SHARED_GRES", "MULTIPLE_SHARING_GRES_PJ", "ONE_TASK_PER_SHARING_GRES":
		return v + " has no effect here: shares of a GPU are always packed on one GPU per job", "remove it"
	case "CR_PACK_NODES":
		return v + " has no effect: tasks are spread over the nodes of a job", "submit jobs with --distribution=*:*:*,Pack"
	}
	return "", ""
}

// TaskPluginParam and CpuBind say how tasks are bound to CPUs whose command does not say it.

var (
	bindUnits = []string{"cores", "none", "sockets", "threads"}
	bindWords = []string{"cores", "none", "sockets", "threads", "verbose", "autobind=cores", "autobind=none",
		"autobind=sockets", "autobind=threads"}
	// inertBinds are words of TaskPluginParam without effect, some of older versions, in lower case.
	inertBinds = map[string]string{
		"slurmdoffspec": "gnoded and gshim stay in control groups of their own, beside jobs",
		"sched":         "tasks are always bound by sched_setaffinity", "cpusets": "jobs always have a cpuset",
		"slurmdspecoverride": "a node's CPUs are those that its NodeName line gives",
		"oomkillstep":        "users say it with grun --oom-kill-step",
	}
)

// readCPUBind reads a node's or a partition's CpuBind; "" is off.
func readCPUBind(v string) (string, fault) {
	word, f := readWord(v, []string{"none", "socket", "ldom", "core", "thread", "off"})
	if word == "off" {
		word = ""
	}
	return word, f
}

// NodeCPUBind reads the CpuBind of an update of nodes.
func NodeCPUBind(value string) (string, error) {
	word, f := readCPUBind(value)
	if f.bad() {
		return "", fmt.Errorf("CpuBind=%s: %s; write CpuBind=none, socket, ldom, core, thread or off", value, f.why)
	}
	return word, nil
}

func taskPluginParam() setting {
	return setting{name: "TaskPluginParam", effect: NewSteps,
		read: func(c *Config, v string) fault {
			c.TaskPluginParam = nil
			how := ""
			for w := range strings.SplitSeq(v, ",") {
				w = strings.TrimSpace(w)
				if _, inert := inertBinds[strings.ToLower(w)]; w == "" || inert {
					continue
				}
				word, f := readWord(w, bindWords)
				if f.bad() {
					return f
				}
				if slices.Contains(bindUnits, word) {
					if how != "" && how != word {
						return fault{how + " and " + word + " are not possible together", how}
					}
					how = word
				}
				c.TaskPluginParam = append(c.TaskPluginParam, word)
			}
			return fault{}
		},
		remark: func(_ *Config, v string) (text, hint string) {
			if why := inertBinds[strings.ToLower(v)]; why != "" {
				return "TaskPluginParam=" + v + " has no effect here: " + why, "remove it"
			}
			return "", ""
		},
		show: func(c *Config) string { return orNull(strings.Join(c.TaskPluginParam, ",")) }}
}

func (c *Config) cpuBind() (b model.CPUBind) {
	for _, w := range c.TaskPluginParam {
		other, auto := strings.CutPrefix(w, "autobind=")
		switch {
		case auto:
			b.Else = other
		case w == "verbose":
			b.Verbose = true
		default:
			b.How = w
		}
	}
	return b
}
