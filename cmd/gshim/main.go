// Command gshim is the launcher of a node: see package noded/shim. gnoded starts it; nobody else needs to. As gshim
// step-io it is the process that carries a step's input and output: see package noded/steprelay; as gshim
// step-pmi it serves the tasks of MPI programs: see package noded/steppmi; as gshim step-x11 it has their display: see
// package noded/stepx11. As gshim login-env it is what
// a job with --get-user-env begins as: see package noded/loginenv. As gshim task-env it is what tasks of MPI programs
// begin as: see package noded/taskenv. As gshim task-around it is around a task with epilogs: see package
// noded/taskaround. As gshim receive-file it takes in a file of
// gbcast: see package noded/receive. As gshim run-bundle it runs a task in a container of an OCI runtime: see
// package noded/oci. As gshim gres-helper it keeps the program of GresHelper beside a job: see package
// noded/greshelper.
package main

import (
	"fmt"
	"os"

	"gbatch/internal/become"
	"gbatch/noded/greshelper"
	"gbatch/noded/loginenv"
	"gbatch/noded/oci"
	"gbatch/noded/receive"
	"gbatch/noded/shim"
	"gbatch/noded/steppmi"
	"gbatch/noded/steprelay"
	"gbatch/noded/stepx11"
	"gbatch/noded/taskaround"
	"gbatch/noded/taskenv"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == steprelay.Word {
		os.Exit(steprelay.Main(os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == steprelay.ListenWord {
		os.Exit(steprelay.Listen(os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == steppmi.Word {
		os.Exit(steppmi.Main(os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == stepx11.Word {
		os.Exit(stepx11.Main(os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == loginenv.Word {
		os.Exit(loginenv.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == taskenv.Word {
		os.Exit(taskenv.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == taskaround.Word {
		os.Exit(taskaround.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == taskaround.MaskWord {
		os.Exit(taskaround.Bind(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == receive.Word {
		os.Exit(receive.Main(os.Args[2:], os.Stdin, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == oci.Word {
		os.Exit(oci.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == greshelper.Word {
		os.Exit(greshelper.Main(os.Args[2:], os.Stdin, os.Stdout))
	}
	if err := become.Private(); err != nil { // jobs' environments are in its memory
		fmt.Fprintln(os.Stderr, "gshim:", err)
		os.Exit(1)
	}
	os.Exit(shim.Main(os.Args[1:], os.Stdout, os.Stderr))
}
