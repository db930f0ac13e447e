package request

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// stated.go reads options that decide nothing in gbatch (model.Stated): their values are checked, shown and passed on,
// and the commands say that they have no effect.

// What commands say about the options.
const (
	NoCPUFreq = "clocks of CPUs are the node's; a prolog or cpupower sets them"
	NoGPUFreq = "clocks of GPUs are the node's; a prolog or nvidia-smi sets them"
	NoProfile = "there are no profiles; gstat shows what a running job uses, gacct and gseff what it used"
)

// cpuWords are the words of --cpu-freq in Slurm's spelling.
var (
	clockWords = []string{"Low", "Medium", "High", "Highm1"}
	governors  = []string{"Conservative", "OnDemand", "Performance", "PowerSave", "SchedUtil", "UserSpace"}
)

// CPUFreq reads p1[-p2[:p3]], speeds in kHz or by name and governors, and gives it in Slurm's spelling.
func CPUFreq(v string) (string, error) {
	span, governor, ruled := strings.Cut(v, ":")
	low, high, both := strings.Cut(span, "-")
	first, ok := clock(low)
	if !ok && !both && !ruled {
		first, ok = wordOf(governors, low)
	}
	out := first
	if both {
		last, fast := clock(high)
		out, ok = out+"-"+last, ok && fast
	}
	if ruled {
		by, rules := wordOf(governors, governor)
		out, ok = out+":"+by, ok && rules && both
	}
	if !ok {
		return "", &getopt.TextError{Text: "Invalid --cpu-freq specification: '" + v +
			"'; write a speed in kHz, low, medium, high, highm1, a governor, or lowest-highest[:governor]"}
	}
	return out, nil
}

// CheckCPUFreq reads --cpu-freq of a step.
func CheckCPUFreq(v string) error {
	_, err := CPUFreq(v)
	return err
}

// CheckGPUFreq reads [type=]value[,[type=]value][,verbose].
func CheckGPUFreq(v string) error {
	for word := range strings.SplitSeq(strings.ToLower(v), ",") {
		kind, value, typed := strings.Cut(word, "=")
		if !typed {
			kind, value = "", word
		}
		if _, ok := clock(value); word == "verbose" || (kind == "" || kind == "memory") && ok {
			continue
		}
		return &getopt.TextError{Text: "Invalid --gpu-freq argument: gpu:" + v +
			"; write a speed in MHz, low, medium, high or highm1, memory=SPEED for the memory, and verbose"}
	}
	return nil
}

// clock reads a speed.
func clock(word string) (string, bool) {
	if w, ok := wordOf(clockWords, word); ok {
		return w, true
	}
	n, err := strconv.ParseUint(word, 10, 32)
	return word, err == nil && n > 0
}

// wordOf finds a word in whatever case.
func wordOf(words []string, word string) (string, bool) {
	i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, word) })
	if i < 0 {
		return "", false
	}
	return words[i], true
}

// profiles are the words of --profile, in the order in which Slurm lists them.
var profiles = []string{"Energy", "Lustre", "Network", "Task"}

// Profile reads --profile and gives it in Slurm's spelling.
func Profile(v string) (string, error) {
	switch strings.ToLower(v) {
	case "none":
		return "None", nil
	case "all":
		return strings.Join(profiles, ","), nil
	}
	given := map[string]bool{}
	for word := range strings.SplitSeq(v, ",") {
		w, ok := wordOf(profiles, word)
		if !ok {
			return "", &getopt.TextError{Text: "invalid --profile=" + v + " option: write none, all, energy, lustre, network " +
				"or task"}
		}
		given[w] = true
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(profiles), func(w string) bool { return !given[w] }), ","), nil
}

// statedOptions are the options that decide nothing.
func (s *Submission) statedOptions() []getopt.Option {
	R := getopt.Required
	text := func(at func(*model.Stated) *string) func(string) error {
		return func(v string) error { *at(s.Stated()) = v; return nil }
	}
	return []getopt.Option{
		{Name: "cpu-freq", Arg: R, Env: "_CPU_FREQ_REQ", Note: NoCPUFreq, Set: func(v string) (err error) {
			s.Stated().CPUFreq, err = CPUFreq(v)
			return err
		}},
		{Name: "gpu-freq", Arg: R, Env: "_GPU_FREQ", Note: NoGPUFreq, Set: func(v string) error {
			s.Stated().GPUFreq = v
			return CheckGPUFreq(v)
		}},
		{Name: "profile", Arg: R, Metavar: "none|all|energy|lustre|network|task", Group: groupNeeds, Env: "_PROFILE",
			Help: "accepted, without effect: gstat and gacct show what a job uses",
			Set: func(v string) (err error) {
				s.Stated().Profile, err = Profile(v)
				if err == nil && s.Stated().Profile != "None" {
					s.Remarks = append(s.Remarks, "--profile has no effect in gbatch: "+NoProfile)
				}
				return err
			}},
		{Name: "network", Arg: R, Env: "_NETWORK", Note: "there is no switch plugin",
			Set: text(func(x *model.Stated) *string { return &x.Network })},
		{Name: "bb", Arg: R, Env: "_BURST_BUFFER", Note: "there is no burst buffer",
			Set: text(func(x *model.Stated) *string { return &x.BurstBuffer })},
		{Name: "delay-boot", Arg: R, Env: "_DELAY_BOOT", Note: "nodes are not booted for jobs", Set: func(v string) error {
			sec, forEver, err := walltime.ParseLimit(v)
			if err == nil && forEver {
				err = errors.New("write minutes, or hours:minutes:seconds")
			}
			s.Stated().DelayBootS = sec
			return err
		}},
	}
}
