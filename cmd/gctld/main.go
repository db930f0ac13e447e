// Command gctld is the controller: see package ctld.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"gbatch/ctld"
	"gbatch/ctld/program"
	"gbatch/internal/become"
	"gbatch/internal/guest"
	"gbatch/internal/version"
)

// removed is the exit code of a controller that was removed: a service manager need not start it again.
const removed = 3

func main() {
	if status, handled := program.Main(os.Args); handled {
		os.Exit(status)
	}
	guest.Half(64)
	if err := become.Private(); err != nil {
		fmt.Fprintln(os.Stderr, "gctld: warning: its memory is open to debuggers:", err)
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "gctld: error:", err)
		if errors.Is(err, ctld.ErrRemoved) {
			os.Exit(removed)
		}
		os.Exit(1)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	s := ctld.Start{Die: fail, Hangup: hangup}
	cmd := &cobra.Command{
		Use:   "gctld",
		Short: "The controller: takes commands, decides what runs where, tells the nodes",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, Version: version.Version,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.Run(cmd.Context(), os.Stderr) },
	}
	f := cmd.Flags()
	f.StringVarP(&s.Conf, "conf", "f", "", "configuration `file` or its directory (default $GBATCH_CONF, /etc/gbatch)")
	f.StringVarP(&s.Name, "name", "N", "",
		"`name` of this controller as in SlurmctldHost (default: this host's, or the only one)")
	f.BoolVar(&s.Begin, "begin", false,
		"mark the empty StateSaveLocation so that the next start begins a new cluster, and exit")
	f.StringVar(&s.Restore, "restore", "",
		"give the stopped controller the state that `FILE` has (of gcontrol snapshot save), and exit")
	f.BoolVar(&s.Replace, "replace", false, "with --restore: replace a state that is there, and keep it beside")
	f.Uint32Var(&s.NextJob, "next-job", 0, "with --restore: `number` of the next job (default: above all given ones)")
	f.BoolVar(&s.AnyTime, "trust-clock", false,
		"with --restore: this host's clock is right, though accounting had the cluster's time as less")
	f.StringVar(&s.Revoked, "revoked", "",
		"with --restore: what was revoked since, of `FILE`: revoked.json of a controller's PKIDir, or a node's spool/revoked")
	f.StringVar(&s.Join, "join", "",
		"get this host's certificate with a `TOKEN@HOST` of gbatch cert token, and end; -: read it")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fail(err)
	}
}
