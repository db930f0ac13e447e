package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gbatch/internal/conf/locate"
	"gbatch/internal/up"
	"gbatch/internal/walltime"
)

func upCommand() *cobra.Command {
	var o up.Options
	var mem string
	var detach bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a whole cluster on this machine",
		Long: "Run a whole cluster on this machine: controllers, accounting, and one node daemon per node, each a process " +
			"of its\n" +
			"own, with everything in one directory. Without --nodes the cluster is this machine with its own " +
			"cores, memory and\n" +
			"GPUs; with it, that many virtual nodes; --cloud makes\n" +
			"nodes that are off until jobs need them. A cluster that is there already keeps its state; what is " +
			"missing of it is\n" +
			"started. In the foreground it runs until Ctrl-C; with --detach the command returns when the cluster takes jobs.",
		Example: "  gbatch up\n  gbatch up --nodes 4 --gpus a100:4 --detach\n  gbatch up --nodes 1 --cloud 3\n" +
			"  gbatch up --conf /etc/slurm/slurm.conf " +
			"--dir /tmp/trial",
		Args: noOperands,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			for _, name := range []string{"nodes", "cloud", "cpus", "controllers", "gdbds"} {
				if f := cmd.Flag(name); f.Changed && f.Value.String() == "0" {
					return fmt.Errorf("--%s 0: at least 1; without --%s it is %s", name, name,
						map[string]string{"nodes": "this machine itself, as it is", "cloud": "none",
							"cpus": "as many as this machine has, at most 4", "controllers": "1", "gdbds": "1"}[name])
				}
			}
			if cmd.Flag("mem").Changed {
				if o.MemMiB, err = walltime.ParseMemMiB(mem); err != nil || o.MemMiB == 0 {
					return fmt.Errorf("--mem %s: a size such as 4000 (MiB) or 4G is wanted", mem)
				}
			}
			if o.Bin, err = ownDir(); err != nil {
				return err
			}
			o.Out = os.Stdout
			return runUp(cmd.Context(), o, detach)
		},
	}
	f := cmd.Flags()
	dirFlag(cmd, &o.Dir)
	f.IntVar(&o.Nodes, "nodes", 0, "make `N` virtual nodes, n1 to nN")
	f.IntVar(&o.Cloud, "cloud", 0, "make `N` virtual nodes c1 to cN that are powered up when jobs need them, and "+
		"down again")
	f.IntVar(&o.CPUs, "cpus", 0, "CPUs of each virtual node (default this machine's, at most 4)")
	f.StringVar(&mem, "mem", "", "memory of each virtual node, `MiB` or with K, M, G, T (default an even share of this "+
		"machine's)")
	f.StringVar(&o.GPUs, "gpus", "", "stand-in GPUs of each virtual node, as `TYPE:COUNT`")
	f.IntVar(&o.Controllers, "controllers", 0, "controllers, 1, 3 or 5 (default 1)")
	f.IntVar(&o.Gdbds, "gdbds", 0, "accounting daemons, 1, or 2 for a copy of the first (default 1)")
	f.StringVar(&o.Conf, "conf", "",
		"take this configuration `FILE` as it is; every node that it defines becomes a virtual one here")
	f.BoolVar(&detach, "detach", false, "return when the cluster takes jobs, and leave it running")
	return cmd
}

func runUp(ctx context.Context, o up.Options, detach bool) error {
	c, err := up.Up(ctx, o)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; what was started is ended again")
	}
	if err != nil {
		return err
	}
	fmt.Print(whatNext(c, o.Dir, detach))
	if detach {
		return nil
	}
	if c.Stay(ctx) {
		fmt.Println("the cluster was taken down")
		return nil
	}
	fmt.Println("taking the cluster down")
	return up.Down(context.WithoutCancel(ctx), c.Dir, o.Bin, os.Stdout)
}

// whatNext says how to use the cluster. Commands find it by themselves where it is the one they look for.
func whatNext(c *up.Cluster, dir string, detach bool) string {
	w := &strings.Builder{}
	fmt.Fprintln(w)
	if found, err := locate.Config(os.Getenv); err != nil || !same(found, c.Conf) {
		fmt.Fprintf(w, "  export GBATCH_CONF=%s\n", shellWord(c.Conf))
	}
	fmt.Fprintln(w, "  gsubmit --wrap 'hostname; sleep 20'     submits a job")
	fmt.Fprintln(w, "  gqueue                                  lists jobs; ginfo lists nodes, gacct what has run")
	for i := range c.Members {
		if url := c.Members[i].HTTP; url != "" {
			fmt.Fprintf(w, "  %-39s the page, for a browser: jobs, GPUs, nodes; scontrol token makes its token\n", url)
			fmt.Fprintf(w, "  %-39s REST and metrics are there too, see gbatch-rest(7)\n", "")
			break
		}
	}
	for i := range c.Members {
		if m := &c.Members[i]; m.Off() {
			fmt.Fprintf(w, "  %-39s powers %s up for it; ginfo shows ~ at nodes that are off, # at those on their way\n",
				"gsubmit -w "+m.Name+" --wrap hostname", m.Name)
			break
		}
	}
	at := ""
	if dir != locate.UpDir(os.Getenv) {
		at = " --dir " + shellWord(c.Dir)
	}
	if detach {
		fmt.Fprintf(w, "  gbatch status%s\n  gbatch down%s\n", at, at)
	} else {
		fmt.Fprintln(w, "Ctrl-C takes the cluster down; its state stays for the next gbatch up.")
	}
	return w.String()
}

// shellWord quotes a path where a shell would cut or change it.
func shellWord(s string) string {
	if strings.ContainsAny(s, " '$`&;()<>|*?[]#~!{}") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func statusCommand() *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemons of this machine's cluster",
		Long:  "Show the daemons of this machine's cluster. The exit status is 0 when all of them run, otherwise 1.",
		Args:  noOperands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := up.Look(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(os.Stdout)
				enc.SetIndent("", "  ")
				err = enc.Encode(st)
			} else {
				err = st.Print(os.Stdout)
			}
			if err == nil && !st.AllRun() {
				err = errSilent
			}
			return err
		},
	}
	lookDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func downCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take this machine's cluster down",
		Long: "Take this machine's cluster down. Running jobs are ended, and those that may be requeued wait in the queue " +
			"for the\nnext gbatch up; all other state stays as well.",
		Args: noOperands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bin, err := ownDir()
			if err != nil {
				return err
			}
			return up.Down(cmd.Context(), dir, bin, os.Stdout)
		},
	}
	lookDirFlag(cmd, &dir)
	return cmd
}

// powerCommand is what ResumeProgram and SuspendProgram of a cluster of gbatch up call.
func powerCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "power on|off NODES",
		Short: "Switch nodes of this machine's cluster on or off",
		Long: "Switch nodes of this machine's cluster on or off, as if they were machines: their daemons start, or end " +
			"with all\nthat runs there. ResumeProgram and SuspendProgram of a cluster with --cloud call it; by hand it " +
			"shows what happens\nwhen a machine is gone. gbatch up leaves nodes off that are off.",
		Example: "  gbatch power off n2\n  gbatch power on 'n[2-4]'",
		Args:    operands(2, 2, "on or off, and names of nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return fmt.Errorf("power %s: write power on NODES or power off NODES", args[0])
			}
			bin, err := ownDir()
			if err != nil {
				return err
			}
			return up.Power(cmd.Context(), dir, bin, args[1], args[0] == "on", os.Stdout)
		},
	}
	lookDirFlag(cmd, &dir)
	return cmd
}

// lookDirFlag is dirFlag for commands about a cluster that is there: without --dir it is the one that GBATCH_CONF
// names, where that was made by gbatch up.
func lookDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", up.DirOf(os.Getenv), "`directory` of the cluster")
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", locate.UpDir(os.Getenv), "`directory` of the cluster")
}

// ownDir is where this program lies, and the daemons beside it.
func ownDir() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("where gbatch itself lies: %w", err)
	}
	return filepath.Dir(self), nil
}
