package gpu

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// profileOf names a MIG instance by its sizes: slices of compute and GPU instance, its memory and the device's. Memory
// is in eighths of the device's, rounded to whole GiB, as in NVIDIA's go-nvlib: an instance's memory is a little less
// than its name says.
func profileOf(compute, slices int, memMiB, deviceMiB int64) string {
	if slices <= 0 || memMiB <= 0 || deviceMiB <= 0 {
		return ""
	}
	const parts = 8
	eighths := (memMiB*parts + deviceMiB/2) / deviceMiB
	all := (deviceMiB + 1023) / 1024 // GiB
	name := fmt.Sprintf("%dg.%dgb", slices, (eighths*all+parts/2)/parts)
	if compute > 0 && compute != slices {
		name = fmt.Sprintf("%dc.%s", compute, name)
	}
	return name
}

// cpuList writes a set of CPUs as the kernel does: "0-31,64".
func cpuList(set []uint) string {
	on := func(i int) bool { return i/bits.UintSize < len(set) && set[i/bits.UintSize]>>(i%bits.UintSize)&1 == 1 }
	var parts []string
	for i := 0; i < len(set)*bits.UintSize; i++ {
		if !on(i) {
			continue
		}
		first := i
		for on(i + 1) {
			i++
		}
		part := strconv.Itoa(first)
		if i > first {
			part += "-" + strconv.Itoa(i)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}
