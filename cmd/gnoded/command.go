package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"gbatch/noded"
	"gbatch/noded/starter"
)

func command() *cobra.Command {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	f := noded.Flags{Hangup: hangup}
	var hardware, gpus, dynamic bool
	var future string
	cmd := &cobra.Command{Use: "gnoded -N NAME", Short: "gbatch's daemon of a compute or login host", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dynamic || cmd.Flags().Changed("future") {
				return errors.New(defined)
			}
			if hardware {
				return noded.PrintHardware(f, os.Stdout)
			}
			if gpus {
				return noded.PrintGres(f, os.Stdout)
			}
			if f.Join != "" {
				return noded.Join(cmd.Context(), f, os.Stdout)
			}
			var err error
			if f.Starter, err = starter.Confine(); err != nil {
				fmt.Fprintln(os.Stderr, "gnoded: warning: it keeps rights that it doesn't need:", err)
			}
			return noded.Main(cmd.Context(), f, os.Stderr)
		}}
	fl := cmd.Flags()
	fl.StringVarP(&f.Name, "node", "N", "", "node `name`, as in the configuration (default: this host's short name)")
	fl.StringVarP(&f.Conf, "conf", "f", "", "configuration `file` (default: $GBATCH_CONF, then /etc/gbatch)")
	fl.BoolVar(&f.Login, "login", false, "a login host: relays commands and runs no jobs")
	fl.BoolVar(&f.Virtual, "virtual", false, "take the configuration's word for the hardware")
	fl.StringVar(&f.PKI, "pki", "", "`directory` of ca.crt and this daemon's certificate")
	fl.StringVar(&f.Spool, "spool", "", "`directory` of what must survive a restart")
	fl.StringSliceVar(&f.Controllers, "controllers", nil, "controllers, `host:port,...`")
	fl.StringVar(&f.SocketDir, "socket-dir", "", "`directory` of the socket that commands talk to")
	fl.StringVar(&f.Shim, "shim", "", "the launcher `program` (default: gshim beside gnoded)")
	fl.StringVar(&f.Join, "join", "",
		"get this host's certificate with a `TOKEN@HOST` of gbatch cert token, and end; -: read it")
	fl.BoolVarP(&hardware, "print-hardware", "C", false, "print this machine as a NodeName line, and end")
	fl.BoolVarP(&gpus, "print-gres", "G", false, "print this machine's GPUs as lines of gres.conf, and end")
	fl.BoolVarP(&dynamic, "dynamic", "Z", false, "")
	fl.StringVarP(&future, "future", "F", "", "")
	fl.Lookup("future").NoOptDefVal = "any"
	for _, name := range []string{"dynamic", "future"} {
		fl.Lookup(name).Hidden = true
	}
	return cmd
}

// defined answers slurmd's -Z and -F.
const defined = "-Z and -F are not supported: the controllers define nodes, and their daemons don't. Start gnoded -N " +
	"NAME where NAME is State=FUTURE in gbatch.conf, or was made by gcontrol create NodeName=NAME with the words that " +
	"gnoded -C prints"
