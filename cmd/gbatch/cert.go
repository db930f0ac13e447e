package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/walltime"
)

func certCommand() *cobra.Command {
	var dir string
	cmd := words(&cobra.Command{
		Use:   "cert",
		Short: "Make the certificates by which daemons know each other",
		Long: "Make the certificates by which daemons know each other. gctld makes the authority and its own certificate " +
			"when a\n" +
			"cluster first starts, and gbatch up all that it needs. A new host joins with a token: gbatch cert token node " +
			"NAME\n" +
			"on a controller prints it, and gnoded --join there gets the certificate. Daemons renew theirs while they run.\n" +
			"init and issue make certificates by hand, without any daemon.",
	})
	cmd.PersistentFlags().StringVar(&dir, "pki", "", "`directory` of the authority (default PKIDir of the configuration)")
	cmd.AddCommand(&cobra.Command{
		Use:   "init CLUSTER",
		Short: "Make the certificate authority of a cluster",
		Args:  operands(1, 1, "the name of a cluster"),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := pkiDir(dir)
			if err != nil {
				return err
			}
			if err := pki.InitCA(at, args[0]); err != nil {
				return err
			}
			fmt.Printf("made the authority of cluster %s: %s; keep ca.key in that directory secret\n", args[0],
				filepath.Join(at, "ca.crt"))
			return nil
		},
	}, issueCommand(&dir), tokenCommand(), certListCommand(), revokeCommand())
	return cmd
}

func issueCommand(dir *string) *cobra.Command {
	var out, life string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "issue ROLE NAME",
		Short: "Issue a daemon's certificate; the roles are " + strings.Join(pki.Roles(), ", "),
		Long: "Issue the certificate of a daemon. ROLE is " + strings.Join(pki.Roles(), ", ") +
			"; NAME is the controller's, node's or\n" +
			"accounting daemon's name. Copy ca.crt, ROLE-NAME.crt and ROLE-NAME.key to PKIDir on that host.",
		Example: "  gbatch cert issue node gpu-node01 --out /root/gpu-node01",
		Args:    operands(2, 2, "a role and a name"),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := pkiDir(*dir)
			if err != nil {
				return err
			}
			if out == "" {
				out = at
			}
			span, unlimited, err := walltime.ParseLimit(life)
			if err != nil || unlimited || span <= 0 {
				return fmt.Errorf("--life %s: write days-hours, such as 30-0", life)
			}
			if err := pki.IssueFor(time.Duration(span)*time.Second, at, args[0], args[1], hosts, out); err != nil {
				return err
			}
			name := filepath.Join(out, args[0]+"-"+args[1])
			fmt.Printf("issued %s.crt and %s.key\n", name, name)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`directory` to write to (default that of the authority)")
	cmd.Flags().StringVar(&life, "life", "3650-0",
		"`days-hours` that it lasts; its daemon renews it if a controller has the authority's key")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "host `names` and addresses to put in, for tools other than gbatch")
	return cmd
}

// pkiDir is the directory given, or the one that the configuration names.
func pkiDir(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	path, err := locate.Config(os.Getenv)
	if err != nil {
		return "", fmt.Errorf("which directory: give one with --pki (%w)", err)
	}
	cfg, _ := conf.LoadFile(path)
	if cfg == nil {
		return "", fmt.Errorf("%s has errors (see `gbatch check`); give the directory with --pki", path)
	}
	return cfg.PKIDir, nil
}
