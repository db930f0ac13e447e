// Command gnoded is the daemon of a compute or login host: see package noded.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"gbatch/internal/become"
	"gbatch/internal/guest"
	"gbatch/noded/fence"
	"gbatch/noded/gpu"
	"gbatch/noded/image"
	"gbatch/noded/starter"
	"gbatch/noded/steppmix"
)

func main() {
	// The driver is asked for GPUs by this program in a process of its own.
	if status, handled := gpu.HelperMain(os.Args, os.Stdout); handled {
		os.Exit(status)
	}
	// gshim asks this program whether the node is given up.
	if status, handled := fence.Main(os.Args, os.Stdout, os.Stderr); handled {
		os.Exit(status)
	}
	// Images of containers are fetched and unpacked by this program in a process without rights.
	if status, handled := image.Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(status)
	}
	// gnoded gives up what it doesn't need; this program, as the starter, has it for what gnoded starts.
	if status, handled := starter.Main(os.Args); handled {
		os.Exit(status)
	}
	// The tasks of Open MPI's programs are served by this program in a process of their user.
	if status, handled := steppmix.Main(os.Args, os.Stderr); handled {
		os.Exit(status)
	}
	guest.Half(4)
	if err := become.Private(); err != nil {
		fmt.Fprintln(os.Stderr, "gnoded: warning: its memory is open to debuggers:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gnoded: error:", err)
		os.Exit(1)
	}
}
