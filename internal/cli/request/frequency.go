package request

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
)

// frequency.go reads --cpu-freq and --gpu-freq. gbatch leaves clocks to the node, so the values are checked, and the
// commands say that they have no effect.

// What commands say about the two options.
const (
	NoCPUFreq = "clocks of CPUs are the node's; a prolog or cpupower sets them"
	NoGPUFreq = "clocks of GPUs are the node's; a prolog or nvidia-smi sets them"
)

var (
	clockWords = []string{"low", "medium", "high", "highm1"}
	governors  = []string{"conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"}
)

// CheckCPUFreq reads p1[-p2[:p3]]: speeds in kHz or by name, and governors.
func CheckCPUFreq(v string) error {
	text := strings.ToLower(v)
	span, governor, ruled := strings.Cut(text, ":")
	low, high, both := strings.Cut(span, "-")
	ok := (clock(low) || !both && !ruled && slices.Contains(governors, low)) && (!both || clock(high)) &&
		(!ruled || both && slices.Contains(governors, governor))
	if !ok {
		return &getopt.TextError{Text: "Invalid --cpu-freq specification: '" + v +
			"'; write a speed in kHz, low, medium, high, highm1, a governor, or lowest-highest[:governor]"}
	}
	return nil
}

// CheckGPUFreq reads [type=]value[,[type=]value][,verbose].
func CheckGPUFreq(v string) error {
	for word := range strings.SplitSeq(strings.ToLower(v), ",") {
		kind, value, typed := strings.Cut(word, "=")
		if !typed {
			kind, value = "", word
		}
		if word == "verbose" || (kind == "" || kind == "memory") && clock(value) {
			continue
		}
		return &getopt.TextError{Text: "Invalid --gpu-freq specification: '" + v +
			"'; write a speed in MHz, low, medium, high or highm1, memory=SPEED for the memory, and verbose"}
	}
	return nil
}

// clock reports whether a word is a speed.
func clock(word string) bool {
	if slices.Contains(clockWords, word) {
		return true
	}
	n, err := strconv.ParseUint(word, 10, 32)
	return err == nil && n > 0
}
