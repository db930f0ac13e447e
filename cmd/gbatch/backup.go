package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gbatch/dbd"
	"gbatch/dbd/backup"
	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/terminal"
)

// backupOptions say which accounting database is meant.
type backupOptions struct {
	conf, dir, pki string
	copy           bool
	copyAddr       string // of the configuration
}

func backupCommand() *cobra.Command {
	var o backupOptions
	cmd := words(&cobra.Command{
		Use:   "backup",
		Short: "Save, verify and restore the accounting database",
		Long: "Save, verify and restore the accounting database. Run it as root or as gdbd's user, on the host of gdbd " +
			"or of a\n" +
			"controller. The state of the controllers is saved with gcontrol snapshot save.",
		Example: "  gbatch backup save /var/backups/acct-2026-11-23\n" +
			"  gbatch backup verify /var/backups/acct-2026-11-23",
	})
	f := cmd.PersistentFlags()
	f.StringVarP(&o.conf, "conf", "f", "", "configuration `file` or its directory (default $GBATCH_CONF, /etc/gbatch)")
	f.StringVar(&o.dir, "dir", "", "`directory` of the database instead of DbdStateLocation")
	f.BoolVar(&o.copy, "copy", false, "ask the gdbd that keeps a copy (AccountingStorageBackupHost): save, status, "+
		"begin-empty")
	f.StringVar(&o.pki, "pki", "", "`directory` of the certificates instead of PKIDir")
	cmd.AddCommand(saveCommand(&o), verifyCommand(), restoreCommand(&o), compactCommand(&o), beginEmptyCommand(&o),
		backupStatusCommand(&o))
	return cmd
}

// admin gives the database that the options and the configuration name.
func (o *backupOptions) admin() (*dbd.Admin, error) {
	path := o.conf
	if path == "" {
		var err error
		if path, err = locate.Config(os.Getenv); err != nil {
			return nil, fmt.Errorf("which cluster: give its configuration with -f (%w)", err)
		}
	}
	read := conf.LoadFile
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		read = conf.Load
	}
	c, _ := read(path)
	if c == nil {
		return nil, fmt.Errorf("the configuration %s can't be used as it is; `gbatch check` tells all about it", path)
	}
	a := &dbd.Admin{Dir: c.DbdStateLocation, Addr: c.DbdAddr, PKI: c.PKIDir, Cluster: c.ClusterName,
		Progress: progress()}
	if o.dir != "" {
		a.Dir = o.dir
	}
	if o.pki != "" {
		a.PKI = o.pki
	}
	o.copyAddr = c.DbdCopyAddr
	if o.copy {
		if c.DbdCopyAddr == "" {
			return nil, errors.New("no gdbd keeps a copy: the configuration has no AccountingStorageBackupHost")
		}
		if a.Addr = c.DbdCopyAddr; o.dir == "" {
			a.Dir = "" // the copy's directory is the first one's only on another host: it is asked
		}
	}
	return a, nil
}

// progress tells a terminal how far it is, at most every tenth of a second, once it takes longer than that.
func progress() dbd.Progress {
	if _, err := terminal.SizeOf(int(os.Stderr.Fd())); err != nil {
		return nil
	}
	last := time.Now()
	return func(what string, done, total int64) {
		if now := time.Now(); now.Sub(last) >= 100*time.Millisecond {
			last = now
			text := what
			if total > 0 {
				text = fmt.Sprintf("%s: %s of %s (%d%%)", what, size(done), size(total), 100*done/total)
			}
			fmt.Fprintf(os.Stderr, "\r%-60s\r", text)
		}
	}
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

// has says what a backup has.
func has(h *backup.Header) string {
	s := fmt.Sprintf("%s (%d unfinished) and %s, %s", plural(int(h.Jobs), "job record"), h.Unfinished,
		plural(int(h.Steps), "step record"), size(h.Bytes))
	if names := h.Clusters(); len(names) > 0 {
		s = fmt.Sprintf("cluster %s, %s", strings.Join(names, ", "), s)
	}
	return s + ", as of " + h.At.Local().Format("2006-01-02T15:04:05")
}

func took(begin time.Time) string {
	return fmt.Sprintf("%.1f s", time.Since(begin).Seconds())
}

func saveCommand(o *backupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "save FILE",
		Short: "Save the accounting database to FILE, while gdbd runs or not",
		Long: "Save the accounting database to FILE, which must not exist. A gdbd that runs goes on meanwhile: FILE has " +
			"every\n" +
			"record up to one moment and none after it. What was written is read again and verified.",
		Args: operands(1, 1, "the name of the file to make"),
		RunE: func(cmd *cobra.Command, args []string) error {
			begin := time.Now()
			a, err := o.admin()
			if err != nil {
				return err
			}
			h, err := a.Save(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Printf("saved and verified %s in %s: %s\n", args[0], took(begin), has(h))
			return nil
		},
	}
}

func verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Read a backup, check every byte and every record, and say what is in it",
		Args:  operands(1, 1, "the name of a backup"),
		RunE: func(_ *cobra.Command, args []string) error {
			begin := time.Now()
			h, err := dbd.VerifyBackup(args[0], progress())
			if err != nil {
				return err
			}
			fmt.Printf("%s is whole (read in %s): %s, made by gbatch %s\n", args[0], took(begin), has(h), h.Version)
			for _, s := range h.Series {
				fmt.Printf("  cluster %s: records up to number %d\n", s.Cluster, s.Seq)
			}
			return nil
		},
	}
}

func restoreCommand(o *backupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the place of the accounting database, with gdbd stopped",
		Long: "Put a backup in the place of the accounting database. gdbd must not run. FILE is verified first; a " +
			"damaged backup " +
			"and\none of another cluster are refused. The database that is there is kept beside the new one. When gdbd " +
			"starts, the\n" +
			"controller sends again the records that came after the backup, as far as it keeps them.",
		Args: operands(1, 1, "the name of a backup"),
		RunE: func(_ *cobra.Command, args []string) error {
			begin := time.Now()
			a, err := o.admin()
			if err != nil {
				return err
			}
			r, err := a.Restore(args[0])
			if err != nil {
				return err
			}
			fmt.Printf("restored %s in %s: %s\n", r.Path, took(begin), has(r.Header))
			if r.Kept != "" {
				fmt.Printf("the database that was there is now %s\n", r.Kept)
			}
			fmt.Println("start gdbd: the controller then sends again what came after the backup, as far as it keeps it; " +
				"gcontrol ping says what is missing")
			return nil
		},
	}
}

func compactCommand(o *backupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "compact",
		Short: "Give the room of deleted records back to the disk, with gdbd stopped",
		Long: "Write the accounting database anew without the room that deleted records have left. gdbd must not run. " +
			"The new " +
			"file\ntakes the place of the old one when both have been found to have the same content. It needs room for " +
			"both.",
		Args: noOperands,
		RunE: func(_ *cobra.Command, _ []string) error {
			begin := time.Now()
			a, err := o.admin()
			if err != nil {
				return err
			}
			c, err := a.Compact()
			if err != nil {
				return err
			}
			fmt.Printf("compacted %s in %s: it had %s and has %s\n", c.Path, took(begin), size(c.Before), size(c.After))
			return nil
		},
	}
}

func beginEmptyCommand(o *backupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "begin-empty",
		Short: "Let gdbd begin with an empty database although the cluster is not new",
		Long: "Let gdbd begin with an empty database although the cluster is not new. Without it such a gdbd takes no " +
			"records,\n" +
			"because its database may only be on a disk that is not mounted, or come back with gbatch backup restore. " +
			"What was\n" +
			"recorded before is then missing for good, but for what the controller still has.",
		Args: noOperands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := o.admin()
			if err != nil {
				return err
			}
			ctx, stop := context.WithTimeout(cmd.Context(), 30*time.Second)
			defer stop()
			if err := a.BeginEmpty(ctx); err != nil {
				return err
			}
			fmt.Println("gdbd may begin with an empty database; the controller sends what it still has")
			return nil
		},
	}
}

func backupStatusCommand(o *backupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Ask the gdbd that runs what it has, and what is missing",
		Args:  noOperands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := o.admin()
			if err != nil {
				return err
			}
			err = backupStatus(cmd.Context(), a)
			if o.copyAddr == "" || o.copy {
				return err
			}
			of := *a
			of.Addr = o.copyAddr
			return errors.Join(err, backupStatus(cmd.Context(), &of))
		},
	}
}

// backupStatus prints what one gdbd has.
func backupStatus(ctx context.Context, a *dbd.Admin) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	r, err := a.State(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("gdbd %s (%s) at %s: %s, %s\n", r.Name, r.Version, a.Addr, r.File, size(r.Bytes))
	for _, s := range r.Series {
		fmt.Printf("  cluster %s: records up to number %d\n", s.Cluster, s.Seq)
	}
	for _, n := range r.Notes {
		fmt.Printf("  note: %s\n", n)
	}
	return nil
}
