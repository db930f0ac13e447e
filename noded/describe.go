package noded

import (
	"fmt"
	"io"
	"os"
	"strings"

	"gbatch/noded/gpu"
)

// describe.go is gnoded --print-hardware: this machine as its line in a configuration.

// roundMiB is what RealMemory is rounded down to: a kernel that keeps a little more for itself than the last one did
// must not make the node smaller than its line says.
const roundMiB = 256

// PrintHardware writes what this machine has as a NodeName line for gbatch.conf.
func PrintHardware(w io.Writer) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	inv, err := takeInventory(machine{root: "/"}, &Options{TmpFS: os.TempDir(), GPUs: gpu.NVML(gpu.NVMLOptions{})})
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(host, ".")
	h := &inv.hw
	mem := h.MemMiB
	if mem > roundMiB {
		mem -= mem % roundMiB
	}
	line := fmt.Sprintf("NodeName=%s CPUs=%d Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d RealMemory=%d", name, h.CPUs, h.Sockets, h.Cores, h.Threads, mem)
	var gres []string
	for _, g := range h.Gres {
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		gres = append(gres, fmt.Sprintf("%s:%d", s, g.Count))
	}
	if len(gres) > 0 {
		line += " Gres=" + strings.Join(gres, ",")
	}
	_, err = fmt.Fprintln(w, line)
	return err
}
