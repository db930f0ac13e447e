package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gbatch/internal/certs"
	"gbatch/internal/client"
	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/walltime"
)

// certtoken.go is what asks the controllers about certificates: tokens, the list, revocation.

const tokenLife = "1:00:00"

// controllers gives the client for this host's controller.
func controllers() (*client.Client, error) {
	path, err := locate.Config(os.Getenv)
	if err != nil {
		return nil, err
	}
	cfg, _ := conf.LoadFile(path)
	if cfg == nil {
		return nil, fmt.Errorf("%s has errors (see `gbatch check`)", path)
	}
	return client.New(cfg.LocalSocketDir), nil
}

func tokenCommand() *cobra.Command {
	var life, host string
	var drop bool
	cmd := &cobra.Command{
		Use:   "token ROLE NAMES | token --drop ID...",
		Short: "Make the token with which a host gets its certificate",
		Long: "Make a token for each of NAMES (n1 or n[01-99]) and print it, a line each: NAME TOKEN@HOST. Run it as an " +
			"administrator\n" +
			"on a controller. Whoever shows the token first, within --life, gets the certificate of that ROLE and NAME: carry " +
			"it to\n" +
			"the host by a safe way and run `gnoded --join TOKEN@HOST` there (with --login for the role login, gctld or gdbd\n" +
			"for theirs). --drop takes tokens back.",
		Example: "  gbatch cert token node gpu[01-16]\n  gbatch cert token --life 10:00 login lg1\n" +
			"  gbatch cert token --drop k3j2h4g5",
		RunE: func(_ *cobra.Command, args []string) error {
			cl, err := controllers()
			if err != nil {
				return err
			}
			if drop {
				if len(args) == 0 {
					return errors.New("--drop: which token? gbatch cert list shows their ids")
				}
				return editCerts(cl, &proto.EditCertsRequest{Drop: args})
			}
			if len(args) != 2 {
				return errors.New("give a role (" + strings.Join(pki.Roles(), ", ") + ") and names")
			}
			return offer(cl, args[0], args[1], life, host)
		},
	}
	cmd.Flags().StringVar(&life, "life", tokenLife, "`time` within which it must be used, as for --time of gsubmit")
	cmd.Flags().StringVar(&host, "controller", "",
		"`host:port` to print as the controller's address (default the leader's)")
	cmd.Flags().BoolVar(&drop, "drop", false, "take the tokens with these ids back")
	return cmd
}

// offer makes tokens. Their secrets don't leave this process but by its output.
func offer(cl *client.Client, role, names, life, host string) error {
	if !slices.Contains(pki.Roles(), role) {
		return fmt.Errorf("there is no role '%s'; the roles are %s", role, strings.Join(pki.Roles(), ", "))
	}
	list, err := hostlist.Expand(names)
	if err != nil {
		return err
	}
	if len(list) == 0 || len(list) > model.MaxFew {
		return fmt.Errorf("%s: give 1 to %d names", names, model.MaxFew)
	}
	span, unlimited, err := walltime.ParseLimit(life)
	if err != nil || unlimited || span <= 0 {
		return fmt.Errorf("--life %s: write minutes, hours:minutes:seconds or days-hours", life)
	}
	rq, tokens := &proto.EditCertsRequest{LifeS: span}, make([]certs.Token, len(list))
	for i, name := range list {
		if tokens[i], err = certs.NewToken(); err != nil {
			return err
		}
		rq.Offer = append(rq.Offer, model.CertToken{ID: tokens[i].ID, Hash: certs.Hash(tokens[i].Secret), Role: role,
			Name: name})
	}
	var r proto.EditCertsReply
	if err := cl.Call(proto.KindEditCerts, rq, &r); err != nil {
		return err
	}
	if host == "" {
		host = r.Addr
	}
	for i, t := range tokens {
		t.Fingerprint = r.Fingerprint
		fmt.Printf("%s %s@%s\n", list[i], t, host)
	}
	return nil
}

func editCerts(cl *client.Client, rq *proto.EditCertsRequest) error {
	var r proto.EditCertsReply
	if err := cl.Call(proto.KindEditCerts, rq, &r); err != nil {
		return err
	}
	for _, s := range r.Said {
		fmt.Println(s)
	}
	return nil
}

func revokeCommand() *cobra.Command {
	var why string
	var keep bool
	cmd := &cobra.Command{
		Use:   "revoke SERIAL | revoke ROLE NAMES",
		Short: "Take certificates back: their connections end at once, and new ones are refused",
		Long: "Take certificates back: one with all that were renewed from the same one (SERIAL, of gbatch cert list), or " +
			"all that a\n" +
			"daemon has been given until now (ROLE NAMES), with its tokens. Their connections end at once, also after a " +
			"change of\n" +
			"the leader and a restart. The daemon can join anew with a token.\n" +
			"Whoever had the host may have set things in users' names. So crontabs and triggers that came by way of it do " +
			"nothing\n" +
			"until their users set them again, waiting jobs are held until they are released, and jobs that run are named.",
		Example: "  gbatch cert revoke node gpu07 --why 'disk was stolen'\n" +
			"  gbatch cert revoke 5d0f2c17a3b94e6e8d1b0c2f4a6e8091",
		Args: operands(1, 2, "a serial number, or a role and names"),
		RunE: func(_ *cobra.Command, args []string) error {
			cl, err := controllers()
			if err != nil {
				return err
			}
			rq := &proto.EditCertsRequest{}
			if len(args) == 1 {
				serial := strings.ToLower(args[0])
				if strings.Trim(serial, "0123456789abcdef") != "" || len(serial) < 8 {
					return fmt.Errorf("'%s' is not a serial number; for all certificates of a daemon give its role and name",
						args[0])
				}
				rq.Revoke = []model.CertRevoked{{Serial: serial, Why: why, Keep: keep}}
				return editCerts(cl, rq)
			}
			list, err := hostlist.Expand(args[1])
			if err != nil || len(list) == 0 || len(list) > model.MaxFew || !slices.Contains(pki.Roles(), args[0]) {
				return errors.Join(fmt.Errorf("give a role (%s) and names", strings.Join(pki.Roles(), ", ")), err)
			}
			for _, name := range list {
				rq.Revoke = append(rq.Revoke, model.CertRevoked{Role: args[0], Name: name, Why: why, Keep: keep})
			}
			return editCerts(cl, rq)
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "a `sentence` for the list and the logs")
	cmd.Flags().BoolVar(&keep, "keep", false,
		"nobody else had the host, it goes out of service: crontabs, triggers and jobs that came by way of it stay")
	return cmd
}

func certListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List tokens, certificates that controllers issued, and what was revoked",
		Long: "List tokens, certificates that controllers issued or renewed, and what was revoked. Certificates of gbatch " +
			"cert issue\nare not known to the controllers, and are listed once their daemons have renewed them.",
		Args: noOperands,
		RunE: func(*cobra.Command, []string) error {
			cl, err := controllers()
			if err != nil {
				return err
			}
			var r proto.CertsReply
			if err := cl.Call(proto.KindCerts, &proto.Empty{}, &r); err != nil {
				return err
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "WHAT\tROLE\tNAME\tUNTIL\tID\tSTATE")
			for _, t := range r.Tokens {
				state := "open"
				switch {
				case t.UsedAt != 0:
					state = "used " + moment(t.UsedAt) + " for " + t.Serial
				case r.Now >= t.Until:
					state = "expired"
				}
				fmt.Fprintf(w, "token\t%s\t%s\t%s\t%s\t%s\n", t.Role, t.Name, moment(t.Until), t.ID, state)
			}
			for _, c := range r.Certs {
				state := "issued " + moment(c.At)
				switch {
				case r.Now >= c.Until:
					state = "expired"
				case c.Family != c.Serial:
					state = "renewed " + moment(c.At)
				}
				fmt.Fprintf(w, "certificate\t%s\t%s\t%s\t%s\t%s\n", c.Role, c.Name, moment(c.Until), c.Serial, state)
			}
			for _, x := range r.Revoked {
				id := x.Serial
				if id == "" {
					id = "all until " + moment(x.At)
				}
				fmt.Fprintf(w, "revoked\t%s\t%s\t\t%s\t%s by %s %s\n", x.Role, x.Name, id, moment(x.At), x.By, x.Why)
			}
			if err := w.Flush(); err != nil || len(r.Certs) > 0 {
				return err
			}
			_, err = fmt.Fprintln(os.Stderr, "gbatch: no controller has issued a certificate; those of gbatch cert issue are "+
				"not listed until their daemons have renewed them")
			return err
		},
	}
}

func moment(t model.Time) string { return time.UnixMilli(int64(t)).Format("2006-01-02T15:04:05") }
