// Command gdbd is gbatch's accounting daemon: see package dbd.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"gbatch/dbd"
	"gbatch/internal/become"
	"gbatch/internal/guest"
	"gbatch/internal/version"
)

func main() {
	guest.Half(16)
	if err := become.Private(); err != nil {
		fmt.Fprintln(os.Stderr, "gdbd: warning: its memory is open to debuggers:", err)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	s := dbd.Start{Hangup: hangup}
	cmd := &cobra.Command{
		Use:   "gdbd",
		Short: "The accounting daemon: remembers every job and answers gacct",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, Version: version.Version,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.Run(cmd.Context(), os.Stderr) },
	}
	f := cmd.Flags()
	f.StringVarP(&s.Conf, "conf", "f", "", "configuration `file` or its directory (default $GBATCH_CONF, /etc/gbatch)")
	f.StringVarP(&s.Options.Name, "name", "N", "", "`name` that the certificate was issued for (default the host's)")
	f.StringVar(&s.Options.Listen, "listen", "", "`host:port` to listen on instead of the configured one")
	f.StringVar(&s.Options.Dir, "dir", "", "`directory` of the database instead of DbdStateLocation")
	f.StringVar(&s.Options.PKI, "pki", "", "`directory` of the certificate instead of PKIDir")
	f.IntVar(&s.Options.KeepMonths, "keep-months", 0, "delete jobs that ended this many `months` ago; 0 keeps all")
	f.StringVar(&s.Join, "join", "",
		"get this host's certificate with a `TOKEN@HOST` of gbatch cert token, and end; -: read it")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gdbd: error:", err)
		os.Exit(1)
	}
}
