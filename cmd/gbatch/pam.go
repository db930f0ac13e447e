package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gbatch/internal/client"
	"gbatch/internal/conf/locate"
	"gbatch/internal/proto"
	"gbatch/internal/userdb"
)

// pam.go is what PAM runs when somebody logs in on a node, by pam_exec(8).

// pamWait is how long a login waits for gnoded.
const pamWait = 10 * time.Second

// pamOptions say what to do with logins that can't be put into a job.
type pamOptions struct {
	conf, socketDir, node string
	noJob, silent         string
}

func pamCommand() *cobra.Command {
	var o pamOptions
	cmd := &cobra.Command{
		Use:   "pam",
		Short: "Let users log in on nodes where they have a job, and put their logins into it",
		Long: "PAM runs this for logins on a node, by pam_exec: a user without a running job there is turned away, and\n" +
			"what others log in for runs in their job that has begun last: with its cores, memory and GPUs, until it\n" +
			"ends. root always gets in.\n" +
			"In /etc/pam.d/sshd, the last account line, and a session line after pam_systemd and before pam_env:",
		Example: "  account  required  pam_exec.so quiet stdout /usr/bin/gbatch pam\n" +
			"  session  required  pam_exec.so quiet stdout /usr/bin/gbatch pam",
		Args: noOperands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range [...][2]string{{"no-job", o.noJob}, {"no-answer", o.silent}} {
				if f[1] != "deny" && f[1] != "allow" {
					return fmt.Errorf("--%s=%s: write deny or allow", f[0], f[1])
				}
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.conf, "conf", "f", "", "configuration `file` or its directory (default /etc/gbatch)")
	f.StringVar(&o.socketDir, "socket-dir", "", "`directory` of gnoded's sockets instead of LocalSocketDir")
	f.StringVar(&o.node, "node", "", "node `name`, where several are on this host")
	f.StringVar(&o.noJob, "no-job", "deny", "`what` to do with users who have no running job here: deny or allow")
	f.StringVar(&o.silent, "no-answer", "deny", "`what` to do with users while gnoded does not answer: deny or allow")
	return cmd
}

// run asks gnoded to put the process that PAM runs in, our parent, into the user's job. It prints what the user should
// read; an error turns the user away.
func (o *pamOptions) run(ctx context.Context, say io.Writer) error {
	env, err := pamEnv()
	if err != nil {
		return err
	}
	os.Clearenv() // a PATH of the user's would choose what root runs
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	switch kind := env["PAM_TYPE"]; kind {
	case "account", "open_session":
	case "close_session":
		return nil
	case "":
		return errors.New("PAM runs this, by pam_exec(8); gbatch pam --help has the lines for /etc/pam.d/sshd")
	default:
		return fmt.Errorf("PAM_TYPE=%s: put this into account and session lines", kind)
	}
	u, err := userdb.New().Named(ctx, env["PAM_USER"])
	if err != nil {
		return fmt.Errorf("user %q: %w", env["PAM_USER"], err)
	}
	uid := u.UID
	if uid == 0 {
		return nil
	}
	ev, err := o.ask(uid)
	switch {
	case err != nil && o.silent == "allow":
		return nil
	case err != nil:
		fmt.Fprintf(say, "Access denied: it is not known whether you have a job here: %v\n", err)
	case ev.Kind == proto.StepAdopted, o.noJob == "allow":
		return nil
	default:
		fmt.Fprintf(say, "Access denied: %s. gqueue --me -t running lists where your jobs run.\n", ev.Text)
	}
	return errSilent
}

// pamEnv gives the variables with which PAM says whom this is about. pam_exec writes them last, after those of the
// login, which may come from a file of the user (pam_env with user_readenv): os.Getenv would give the user's, which are
// the first.
func pamEnv() (map[string]string, error) {
	all, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for one := range bytes.SplitSeq(all, []byte{0}) {
		if name, v, ok := strings.Cut(string(one), "="); ok && strings.HasPrefix(name, "PAM_") {
			env[name] = v
		}
	}
	return env, nil
}

// ask gives gnoded's answer.
func (o *pamOptions) ask(uid uint32) (ev *proto.StepEvent, err error) {
	dir := o.socketDir
	if dir == "" {
		_, dir, err = locate.SocketDir(func(name string) string {
			if name == locate.EnvConf {
				return o.conf
			}
			return ""
		})
	}
	if err != nil {
		return nil, err
	}
	node := o.node
	if node == "" {
		found, err := filepath.Glob(filepath.Join(dir, proto.StepSocket("*")))
		switch {
		case err != nil:
			return nil, err
		case len(found) == 0:
			return nil, fmt.Errorf("no gnoded has its socket in %s", dir)
		case len(found) > 1:
			return nil, fmt.Errorf("%d nodes have sockets in %s; --node says which one is meant", len(found), dir)
		}
		node = strings.TrimPrefix(filepath.Base(found[0]), proto.StepSocket(""))
	}
	c, err := client.DialSteps(dir, node)
	if err != nil {
		return nil, err
	}
	defer c.Free()
	late := time.AfterFunc(pamWait, c.Close) // wakes the reader
	defer late.Stop()
	if err := c.Send(proto.StepFrameAdopt, &proto.StepAdopt{UID: uid}, nil); err != nil {
		return nil, err
	}
	if ev, err = c.Read(); err != nil {
		return nil, fmt.Errorf("gnoded of %s does not answer: %w", node, err)
	}
	return ev, nil
}
