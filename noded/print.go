package noded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
)

// print.go is gnoded -C and -G: this machine as its lines in a configuration.

// PrintHardware writes what this machine has as a NodeName line for gbatch.conf. GPUs are looked for as for
// PrintGres; what the configuration says that the node has is left out of account.
func PrintHardware(f Flags, w io.Writer) error {
	o, err := lookOf(f)
	if err != nil {
		return err
	}
	return hardware.PrintNode(o, w)
}

// PrintGres writes the GPUs that this machine has as lines for gres.conf. How they are looked for is what the
// configuration says, if there is one.
func PrintGres(f Flags, w io.Writer) error {
	o, err := lookOf(f)
	if err != nil {
		return err
	}
	return hardware.PrintGres(o, w)
}

// lookOf is for a look at the machine: a configuration is used if there is one, and must be right if it was
// named.
func lookOf(f Flags) (*hardware.Look, error) {
	o := &hardware.Look{Name: f.Name, Virtual: f.Virtual, TmpFS: os.TempDir(), GPUs: gpu.NVML(gpu.NVMLOptions{})}
	path := f.Conf
	if path == "" {
		path, _ = locate.Config(os.Getenv) // a machine that is no node yet has none
	}
	if path != "" {
		c, problems := conf.LoadFile(path)
		for _, p := range problems {
			if p.Severity == conf.Error && f.Conf != "" {
				return o, errors.New(p.String())
			}
		}
		if c != nil {
			o.Config, o.ConfigPath = c, c.Path
		}
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("name of this host: %w", err)
		}
		o.Name, _, _ = strings.Cut(host, ".")
	}
	return o, nil
}
