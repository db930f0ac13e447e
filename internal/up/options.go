package up

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Options say what Up makes and starts. Those that describe the cluster count when DIR is new; for a cluster that is
// there already they must be empty or say what it was made with.
type Options struct {
	Dir string // where everything lies; "": DefaultDir
	Bin string // directory of the daemons' programs

	Nodes       int    // virtual nodes n1..nN; 0 without Cloud: this machine itself
	Cloud       int    // virtual nodes c1..cN that exist while they are powered up (State=CLOUD)
	CPUs        int    // of each virtual node; 0: as many as this machine has, at most 4
	MemMiB      int64  // of each virtual node; 0: an even share of this machine's memory
	GPUs        string // of each virtual node, TYPE:K or K; "": none
	Controllers int    // 1, 3 or 5; 0: 1
	Gdbds       int    // 1, or 2: the second one is a copy; 0: 1
	// a configuration file whose nodes all become virtual nodes here; excludes the above but Controllers and Gdbds
	Conf string

	Timeout time.Duration // until the cluster takes jobs; 0: as long as that may take for so many nodes
	Out     io.Writer     // progress, a line at a time
}

// Limits of what Up makes.
const (
	MaxVirtualNodes = 1024
	maxVirtualCPUs  = 4096
	maxVirtualGPUs  = 64
	maxDirBytes     = 512

	startPatience   = 30 * time.Second       // until a cluster takes jobs,
	patiencePerNode = 250 * time.Millisecond // and more for each node
	nodePatience    = 15 * time.Second       // for a node's daemon to end by itself
	ctldPatience    = 20 * time.Second       // for a controller, which gives leadership away and closes its log
	dbdPatience     = 20 * time.Second
	shimPatience    = 10 * time.Second
	giveUpPatience  = 3 * time.Second // for daemons of a cluster that didn't come up
	stayEvery       = time.Second     // between two looks at a cluster that runs
)

var gpuForm = regexp.MustCompile(`^(?:([A-Za-z][A-Za-z0-9_.-]{0,63}):)?([0-9]{1,4})$`)

// check completes and validates the options.
func (o *Options) check() error {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Dir == "" {
		return errors.New("no directory for the cluster: give one with --dir")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("the directory %s: %w", o.Dir, err)
	}
	if len(dir) > maxDirBytes || strings.ContainsAny(dir, "\"\\%\n\r\t") {
		return fmt.Errorf("the directory %q can't stand in a configuration file: use a name of at most %d bytes without "+
			"quotes, backslashes, %% and control characters", dir, maxDirBytes)
	}
	o.Dir = dir
	if o.Conf != "" {
		if o.Nodes != 0 || o.Cloud != 0 || o.CPUs != 0 || o.MemMiB != 0 || o.GPUs != "" {
			return errors.New("--conf says itself which nodes there are and what they have: leave out --nodes, --cloud, " +
				"--cpus, --mem and --gpus")
		}
		if o.Conf, err = filepath.Abs(o.Conf); err != nil {
			return fmt.Errorf("the configuration %s: %w", o.Conf, err)
		}
		if strings.ContainsAny(o.Conf, "\"\\%\n\r\t") {
			return fmt.Errorf("the file name %q can't stand in an Include line: use one without quotes, backslashes, %% and "+
				"control characters", o.Conf)
		}
	}
	if o.Nodes < 0 || o.Nodes > MaxVirtualNodes {
		return fmt.Errorf("--nodes %d: from 1 to %d virtual nodes, or none for this machine itself", o.Nodes, MaxVirtualNodes)
	}
	if o.Cloud < 0 || o.Cloud+o.Nodes > MaxVirtualNodes {
		return fmt.Errorf("--cloud %d: at most %d virtual nodes, together with --nodes", o.Cloud, MaxVirtualNodes)
	}
	if o.Nodes == 0 && o.Cloud == 0 && (o.CPUs != 0 || o.MemMiB != 0 || o.GPUs != "") {
		return errors.New("--cpus, --mem and --gpus describe virtual nodes: add --nodes 1 (without --nodes the cluster is " +
			"this machine with what it has)")
	}
	if o.CPUs < 0 || o.CPUs > maxVirtualCPUs {
		return fmt.Errorf("--cpus %d: from 1 to %d", o.CPUs, maxVirtualCPUs)
	}
	if o.MemMiB < 0 || o.MemMiB > 1<<40 {
		return fmt.Errorf("--mem %d: a size such as 4000 (MiB) or 4G", o.MemMiB)
	}
	if o.GPUs != "" {
		m := gpuForm.FindStringSubmatch(o.GPUs)
		if m == nil {
			return fmt.Errorf("--gpus %s: write TYPE:COUNT, such as a100:4", o.GPUs)
		}
		if n, err := strconv.Atoi(m[2]); err != nil || n < 1 || n > maxVirtualGPUs {
			return fmt.Errorf("--gpus %s: from 1 to %d GPUs a node", o.GPUs, maxVirtualGPUs)
		}
	}
	switch o.Controllers {
	case 0, 1, 3, 5:
	default:
		return fmt.Errorf("--controllers %d: 1, 3 to survive the loss of one, or 5 of two", o.Controllers)
	}
	if o.Gdbds < 0 || o.Gdbds > 2 {
		return fmt.Errorf("--gdbds %d: 1, or 2 to have a copy of the accounting database", o.Gdbds)
	}
	return nil
}

// describes reports whether the options say anything about the cluster itself.
func (o *Options) describes() bool {
	return o.Nodes != 0 || o.Cloud != 0 || o.Controllers != 0 || o.Gdbds != 0 || o.Conf != ""
}
