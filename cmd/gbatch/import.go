package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gbatch/dbd"
	"gbatch/internal/acctmgr"
	"gbatch/internal/migrate"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/userdb"
)

// importOptions are what `gbatch import` is asked for.
type importOptions struct {
	backupOptions
	output, accounts, qos, history, cluster string
	pools                                   string
	nodes                                   []string
	force, dryRun, json, all                bool
	badRows                                 int
}

func importCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import [DIR]",
		Short: "Carry over a Slurm installation: its files, accounts and history",
		Long: "Carry over a Slurm installation. DIR, such as /etc/slurm, has its configuration files: with -o they are " +
			"written as\n" +
			"ours. --accounts and --qos bring accounts, users, associations and QOS into the running cluster, --history the " +
			"records\n" +
			"of jobs and steps into its gdbd. A report says of each key and line whether it is kept, translated, ignored or " +
			"not\n" +
			"supported. --pools does the same for YAML of Kubernetes' schedulers: ComputePool, ElasticJob, Volcano's Queue\n" +
			"and ConfigMaps with queues.yaml become partitions, accounts, QOS, reservations and, in -o's directory, scripts.\n" +
			"All of it may be done again: nothing is there twice. The exit status is 1 when something needs a person.",
		Example: "  gbatch import /etc/slurm -o /etc/gbatch\n" +
			"  sacctmgr dump mycluster file=accounts.cfg; sacctmgr -P show qos >qos.txt\n" +
			"  gbatch import --accounts accounts.cfg --qos qos.txt\n" +
			"  sacct -P -a -D -S 2000-01-01 -o ALL >history.txt\n" +
			"  gbatch import --history history.txt\n" +
			"  gbatch import --pools computepool.yaml --nodes training-pool=gpu[1-8] --dry-run",
		Args: operands(0, 1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "`directory` to write the configuration, or the scripts of --pools, to; "+
		"without it there is only the report")
	f.BoolVar(&o.force, "force", false, "write over files that are there")
	f.StringVar(&o.accounts, "accounts", "", "`FILE` of sacctmgr dump: accounts, users and associations")
	f.StringVar(&o.qos, "qos", "", "`FILE` of sacctmgr -P show qos, which a dump lacks")
	f.StringVar(&o.history, "history", "", "`FILE` of sacct -P -a -D -o ALL: jobs and steps; - is standard input")
	f.StringVar(&o.pools, "pools", "", "`FILE` of YAML: pools, queues and elastic jobs; - is standard input")
	f.StringArrayVar(&o.nodes, "nodes", nil, "`POOL=NODES` of the partition that --pools makes; it may be given "+
		"several times")
	f.StringVar(&o.cluster, "cluster", "", "`NAME` of the cluster whose records --history brings (default this cluster)")
	f.IntVar(&o.badRows, "bad-rows", 1000, "rows of --history that may be wrong before it ends")
	f.BoolVar(&o.dryRun, "dry-run", false, "read and report only, and change nothing")
	f.BoolVar(&o.all, "all", false, "report what is kept, too")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.StringVarP(&o.conf, "conf", "f", "",
		"configuration `file` of the running cluster, or its directory (default $GBATCH_CONF, /etc/gbatch)")
	f.StringVar(&o.pki, "pki", "", "`directory` of the certificates instead of PKIDir")
	return cmd
}

// run does what is asked for, and prints one report about all of it.
func (o *importOptions) run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0 && o.accounts == "" && o.qos == "" && o.history == "" && o.pools == "":
		return errors.New("import what: a directory such as /etc/slurm, --accounts, --qos, --history or --pools")
	case len(args) == 0 && o.output != "" && o.pools == "":
		return errors.New("-o is for configuration files and scripts: give a directory, such as /etc/slurm, or --pools")
	case len(o.nodes) > 0 && o.pools == "":
		return errors.New("--nodes is for --pools")
	case o.history == "" && o.cluster != "":
		return errors.New("--cluster is for --history")
	case o.badRows < 0:
		return errors.New("--bad-rows: a number from 0 on is wanted")
	}
	r := &migrate.Report{}
	var said []string
	say := func(text string) {
		if text != "" {
			said = append(said, text)
		}
	}
	var failed error
	if len(args) > 0 {
		text, err := o.files(args[0], r)
		say(text)
		failed = err
	}
	if failed == nil && (o.accounts != "" || o.qos != "") {
		text, err := o.bringAccounts(ctx, r)
		say(text)
		failed = err
	}
	if failed == nil && o.history != "" {
		text, err := o.bringHistory(ctx, r)
		say(text)
		failed = err
	}
	if failed == nil && o.pools != "" {
		text, err := o.bringPools(r)
		say(text)
		failed = err
	}
	if err := o.print(r, said); err != nil {
		return errors.Join(failed, err)
	}
	if failed == nil && r.Lost() {
		return errSilent
	}
	return failed
}

// print writes the report.
func (o *importOptions) print(r *migrate.Report, said []string) error {
	if o.json {
		counts := map[string]int{}
		for k, n := range r.Counts {
			counts[migrate.Kind(k).String()] = n
		}
		items := r.Items
		if items == nil {
			items = []migrate.Item{}
		}
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"items": items, "counts": counts, "done": said})
	}
	for _, i := range r.Items {
		if i.Kind != migrate.Kept || o.all {
			fmt.Println(i)
		}
	}
	if r.More > 0 {
		fmt.Printf("and %d more\n", r.More)
	}
	for _, s := range said {
		fmt.Println(s)
	}
	fmt.Println(r.Sum())
	return nil
}

// readText reads a file of accounts; no name is no text.
func readText(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, acctmgr.MaxFlatBytes+1))
	if err == nil && len(data) > acctmgr.MaxFlatBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, acctmgr.MaxFlatBytes)
	}
	return string(data), err
}

// bringAccounts makes the accounts by the requests that gacctmgr load makes.
func (o *importOptions) bringAccounts(ctx context.Context, r *migrate.Report) (string, error) {
	dump, err := readText(o.accounts)
	if err != nil {
		return "", err
	}
	qos, err := readText(o.qos)
	if err != nil {
		return "", err
	}
	cl, err := controllers()
	if err != nil {
		return "", err
	}
	defer cl.Close()
	const tries = 64 // others may change accounts meanwhile
	for n := 1; ; n++ {
		facts, err := acctmgr.Ask(cl.Stream, cl.Decode)
		if err != nil {
			return "", err
		}
		var here migrate.Report
		text, err := migrate.ReadAccounts(o.accounts, dump, o.qos, qos,
			func(name string) bool { return facts.QOS[name] != nil }, &here)
		if err != nil {
			return "", err
		}
		plan, err := acctmgr.LoadForeign(facts, text.Text, facts.Cluster, func(line int, what, why string) {
			file, at := text.At(line)
			here.Add(migrate.Person, file, at, what, "%s", why)
		})
		if err != nil {
			return "", err
		}
		known := uidOf(ctx)
		for _, name := range plan.NewUsers {
			if _, is := known(name); !is {
				here.Add(migrate.Person, o.accounts, 0, "User "+name, "there is no such user on this host")
			}
		}
		did := "accounts: " + plural(len(plan.Edits), "change")
		if o.dryRun {
			r.Join(&here)
			return did + " to make", nil
		}
		var e *rpc.Error
		if len(plan.Edits) > 0 {
			err = cl.Call(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: facts.Gen, Edits: plan.Edits},
				&proto.Empty{})
		}
		switch {
		case err == nil:
			r.Join(&here)
			return did + " made", nil
		case !errors.As(err, &e) || e.Code != proto.CodeOutdated || n == tries:
			return "", err
		}
		time.Sleep(rand.N(50 * time.Millisecond)) // others who have lost the race come at other moments
	}
}

// bringHistory brings the rows of sacct to gdbd, and to the one that keeps a copy.
func (o *importOptions) bringHistory(ctx context.Context, r *migrate.Report) (string, error) {
	begin := time.Now()
	admin, err := o.admin()
	if err != nil {
		return "", err
	}
	cluster := o.cluster
	if cluster == "" {
		cluster = admin.Cluster
	}
	in := os.Stdin
	if o.history != "-" {
		if in, err = os.Open(o.history); err != nil {
			return "", err
		}
		defer func() { _ = in.Close() }() // nothing was written
	}
	h, err := migrate.NewHistory(in, migrate.HistoryOptions{Cluster: cluster, UID: uidOf(ctx)})
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.history, err)
	}
	for _, name := range h.Left {
		r.Add(migrate.Ignored, o.history, 1, name, "records have no place for it")
	}
	var to []*dbd.Importer
	if !o.dryRun {
		for _, addr := range []string{admin.Addr, o.copyAddr} {
			if addr == "" && len(to) > 0 {
				continue
			}
			of := *admin
			of.Addr = addr
			i, err := of.Import(ctx, cluster)
			if err != nil {
				return "", err
			}
			defer func() { _ = i.Close() }() // Flush has said what is on disk
			to = append(to, i)
		}
	}
	err = o.rows(ctx, h, to, r)
	if h.Cluster != "" && h.Cluster != cluster {
		r.Add(migrate.Translated, o.history, 0, "Cluster="+h.Cluster, "the records are of cluster %s", cluster)
	}
	if n := h.Counts.NoUser; n > 0 {
		r.Add(migrate.Person, o.history, 0, "User", "%d jobs are of users that this host does not know, and the dump has no "+
			"UID: they are nobody's; add UID to sacct's -o", n)
	}
	if n := h.Counts.Unfinished; n > 0 {
		r.Add(migrate.Person, o.history, 0, "State", "%d rows are of jobs that were not over when the dump was made: dump "+
			"again when they are", n)
	}
	verb := "brought"
	if o.dryRun {
		verb = "read"
	}
	return fmt.Sprintf("history: %s and %s of cluster %s %s in %s", plural(int(h.Counts.Jobs), "job"),
		plural(int(h.Counts.Steps), "step"), cluster, verb, took(begin)), err
}

// rows brings all rows. Those that can't be read are reported, up to a number.
func (o *importOptions) rows(ctx context.Context, h *migrate.History, to []*dbd.Importer, r *migrate.Report) error {
	tell := progress()
	bad := 0
	for n := int64(0); ; n++ {
		rec, err := h.Next()
		var row *migrate.RowError
		var refused *dbd.BadRequestError
		switch {
		case errors.Is(err, io.EOF):
			for _, i := range to {
				if err := i.Flush(ctx); err != nil {
					return err
				}
			}
			return nil
		case err == nil:
			for _, i := range to {
				of := *rec
				if err = i.Add(ctx, &of); err != nil && !errors.As(err, &refused) {
					return err
				}
			}
			r.Counts[migrate.Kept]++
		case !errors.As(err, &row):
			return fmt.Errorf("%s: %w", o.history, err)
		}
		switch {
		case row != nil:
			r.Add(migrate.Person, o.history, row.Line, "", "%s", row.Text)
			bad++
		case refused != nil:
			r.Add(migrate.Person, o.history, h.Line(), "", "%s", refused.Text)
			bad++
		}
		if bad > o.badRows {
			return fmt.Errorf("%s: more than %d rows can't be read; --bad-rows allows more", o.history, o.badRows)
		}
		if tell != nil && n%1000 == 0 {
			tell(fmt.Sprintf("%d rows", n), 0, 0)
		}
	}
}

// uidOf looks users up as daemons do.
func uidOf(ctx context.Context) func(name string) (uint32, bool) {
	users := userdb.New()
	return func(name string) (uint32, bool) {
		u, err := users.Named(ctx, name)
		return u.UID, err == nil
	}
}
