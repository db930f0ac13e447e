//go:build linux && (amd64 || arm64)

package taskaround

import (
	"fmt"
	"io"
	"math/big"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MaskWord is the first argument that makes gshim's program bind the task that has started it to CPUs. The masks follow
// that a prolog has set SLURM_PROLOG_CPU_MASK to, in hexadecimal, one for each task of the node in turn.
const MaskWord = "task-mask"

// Bind is that program. It returns the exit status.
func Bind(args []string, stderr io.Writer) int {
	local, _ := strconv.Atoi(os.Getenv("SLURM_LOCALID")) // 0 without one
	set, err := maskOf(args[0], local)
	if err == nil {
		err = os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(os.Getppid(), &set))
	}
	if err != nil {
		// the exit status says it too
		_, _ = fmt.Fprintf(stderr, "%sSLURM_PROLOG_CPU_MASK=%s: %v\n", stepdError, args[0], err)
		return 1
	}
	return 0
}

// maskOf gives the CPUs of a task's mask.
func maskOf(list string, local int) (set unix.CPUSet, err error) {
	masks := strings.Split(list, ",")
	text := masks[local%len(masks)]
	digits := strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X")
	n, ok := new(big.Int).SetString(digits, 16)
	if !ok || n.Sign() <= 0 {
		return set, fmt.Errorf("%q is no mask of CPUs in hexadecimal", text)
	}
	for i := range n.BitLen() {
		if n.Bit(i) != 0 {
			set.Set(i)
		}
	}
	return set, nil
}
