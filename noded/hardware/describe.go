package hardware

import (
	"fmt"
	"io"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
)

// describe.go is gnoded -C and -G: this machine as its lines in a configuration.

// roundMiB is the unit to which RealMemory is rounded down: if a new kernel keeps a little more memory for itself, the
// node must not have less than its line says.
const roundMiB = 256

// PrintNode writes this machine's hardware as a NodeName line for gbatch.conf. It detects GPUs as PrintGres does, and
// ignores the node's line in the configuration.
func PrintNode(o *Look, w io.Writer) error {
	asIs := *o
	asIs.AsIs = true
	inv, err := Take(Machine{Root: "/"}, &asIs)
	if err != nil {
		return err
	}
	h := &inv.Hw
	mem := h.MemMiB
	if mem > roundMiB {
		mem -= mem % roundMiB
	}
	line := fmt.Sprintf("%sNodeName=%s CPUs=%d Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d RealMemory=%d", remarks(h),
		o.Name, h.CPUs, h.Sockets, h.Cores, h.Threads, mem)
	if gres := GresText(h.Gres); gres != "" {
		line += " Gres=" + gres
	}
	_, err = fmt.Fprintln(w, line)
	return err
}

// PrintGres writes this machine's GPUs as lines for gres.conf. The configuration, if there is one, says how to detect
// them.
func PrintGres(o *Look, w io.Writer) error {
	inv, err := Take(Machine{Root: "/"}, o)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, gresLines(o.Name, inv))
	return err
}

// remarks are notes about the hardware, as comments.
func remarks(h *proto.Hardware) string {
	var b strings.Builder
	for _, note := range h.Notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	if h.Problem != "" {
		fmt.Fprintf(&b, "# %s\n", h.Problem)
	}
	return b.String()
}

// gresLines writes one line for each GPU and MIG instance.
func gresLines(node string, inv *Inventory) string {
	var b strings.Builder
	b.WriteString(remarks(&inv.Hw))
	found := false
	threads := max(int(inv.Hw.Threads), 1)
	for i := range inv.Units {
		u := &inv.Units[i]
		if u.Dev == nil {
			continue
		}
		found = true
		if u.Product != "" || u.UUID != "" {
			fmt.Fprintf(&b, "# %s\n", strings.TrimSpace(u.Product+" "+u.UUID))
		}
		if len(u.Files) == 0 && u.UUID == "" {
			b.WriteString("# ") // a line without a device would mean any
		}
		fmt.Fprintf(&b, "NodeName=%s Name=%s", node, u.Name)
		if u.Type != "" {
			fmt.Fprintf(&b, " Type=%s", u.Type)
		}
		switch {
		case len(u.Files) > 1:
			fmt.Fprintf(&b, " MultipleFiles=%s", strings.Join(u.Files, ","))
		case len(u.Files) == 1 && u.Inst == nil: // instances without files of their own share their GPU's
			fmt.Fprintf(&b, " File=%s", u.Files[0])
		case u.UUID != "":
			fmt.Fprintf(&b, " UniqueId=%s", u.UUID)
		}
		var cores []int
		u.Near.Each(func(cpu int) bool {
			if c := cpu / threads; len(cores) == 0 || cores[len(cores)-1] != c {
				cores = append(cores, c)
			}
			return true
		})
		if len(cores) > 0 {
			fmt.Fprintf(&b, " Cores=%s", hostlist.FormatIndexes(cores))
		}
		if len(u.Links) > 1 {
			links := make([]string, len(u.Links))
			for k, n := range u.Links {
				links[k] = fmt.Sprint(n)
			}
			fmt.Fprintf(&b, " Links=%s", strings.Join(links, ","))
		}
		b.WriteByte('\n')
	}
	if !found {
		b.WriteString("# no GPUs were found on this machine\n")
	}
	return b.String()
}
