package run

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// gbcast.go sends a file to the nodes of a job: gbcast (sbcast), and grun --bcast. The nodes take it in as a step that
// is none of the job's: package noded/receive has the other end.

const (
	leastPiece = 4 << 10
	mostPiece  = 8 << 20
	usualPiece = 256 << 10
)

// sending is a file on its way.
type sending struct {
	file  *os.File
	piece int           // bytes that are read at once
	stall time.Duration // a piece that takes longer ends the transfer; 0: there is no limit
}

// bcast holds the values of gbcast's options.
type bcast struct {
	*env.Env
	job      string
	compress string
	force    bool
	preserve bool
	piece    int64
	stall    int64
	verbose  int
}

func (b *bcast) options() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "compress", Short: 'C', Arg: getopt.Optional, Metavar: "lz4|none", Env: "SBCAST_COMPRESS",
			Help: "lz4 or none; accepted, without effect: the file goes as it is", Set: setCompress(&b.compress)},
		{Name: "exclude", Arg: R, Metavar: "dir", Env: "SBCAST_EXCLUDE",
			Help: "accepted, without effect: no libraries are sent", Set: env.Ignored},
		{Name: "fanout", Short: 'F', Arg: R, Metavar: "n", Env: "SBCAST_FANOUT",
			Help: "accepted, without effect: the file goes to each node directly", Set: request.Count(new(int32))},
		{Name: "treewidth", Arg: R, Metavar: "n", Env: "SBCAST_TREEWIDTH", Help: "like --fanout",
			Set: request.Count(new(int32))},
		{Name: "force", Short: 'f', Env: "SBCAST_FORCE", Help: "replace a file that is there", Set: getopt.Flag(&b.force)},
		{Name: "jobid", Short: 'j', Arg: R, Metavar: "job[.step]",
			Help: "the job (12, 12_3, or 12+1 for a component), or a step of it and its nodes (default: the job that gbcast " +
				"runs in)", Set: getopt.Text(&b.job)},
		{Name: "preserve", Short: 'p', Env: "SBCAST_PRESERVE",
			Help: "keep the times of the file (its permissions are kept anyway)", Set: getopt.Flag(&b.preserve)},
		{Name: "send-libs", Arg: getopt.Optional, Metavar: "how", Env: "SBCAST_SEND_LIBS",
			Help: "no; libraries are not sent: send them one by one, or link the program statically", Set: refuseLibs},
		{Name: "size", Short: 's', Arg: R, Metavar: "size", Env: "SBCAST_SIZE",
			Help: "bytes that are sent at once, with k or m (default 256k, at most 8m)", Set: setPiece(&b.piece)},
		{Name: "timeout", Short: 't', Arg: R, Metavar: "seconds", Env: "SBCAST_TIMEOUT",
			Help: "give up when the nodes take nothing for so long (default: no limit)", Set: getopt.Number(&b.stall, 0, 1<<30)},
		{Name: "verbose", Short: 'v', Help: "print more", Set: getopt.Count(&b.verbose)},
	}
}

// setCompress reads the name of a library for compression.
func setCompress(dst *string) func(string) error {
	return func(v string) error {
		switch v {
		case "", "lz4":
			*dst = "lz4"
		case "none":
			*dst = ""
		default:
			return &getopt.TextError{Text: "Invalid --compress specification: '" + v + "': write lz4 or none"}
		}
		return nil
	}
}

// noCompression is what a command says that was asked for it.
const noCompression = "note: --compress has no effect: the file goes as it is"

// refuseLibs reads --send-libs, of which only no works.
func refuseLibs(v string) error {
	if strings.EqualFold(v, "no") || strings.EqualFold(v, "n") {
		return nil
	}
	return &getopt.TextError{Text: "--send-libs is not supported by gbatch: send the libraries one by one with gbcast, " +
		"or link the program statically"}
}

// setPiece reads the size of a piece.
func setPiece(dst *int64) func(string) error {
	return func(v string) error {
		digits := strings.TrimRight(v, "kKmM")
		var n int64
		if err := getopt.Number(&n, 0, 1<<40)(digits); err != nil || len(v)-len(digits) > 1 {
			return errors.New("write a number of bytes, or one with k or m")
		}
		switch strings.ToLower(v[len(digits):]) {
		case "k":
			n <<= 10
		case "m":
			n <<= 20
		}
		*dst = min(max(n, leastPiece), mostPiece)
		return nil
	}
}

// Gbcast sends a file to all nodes of a job, or of a step.
func Gbcast(e *env.Env) int {
	b := &bcast{Env: e, piece: usualPiece}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(b.options(), getopt.HelpOptions('h')...),
		Operands: "SOURCE DEST",
		Brief:    "[-CFfjpstvV] SOURCE DEST",
		OperandValues: func([]string, string) getopt.Values {
			return getopt.Values{Kind: getopt.Files}
		},
		Values: func(option string) (getopt.Values, bool) { // elsewhere it has nodes
			return getopt.Values{Kind: getopt.Dirs}, option == "exclude"
		},
		About: "Send a file to all nodes of a job: from its batch script, under galloc, or with --jobid from elsewhere. A " +
			"DEST that ends with / is a directory. It should be on a file system of each node's own; nothing is replaced " +
			"without --force."})
	words, err := p.Parse(e.Args, e.Lookup)
	switch {
	case err != nil:
		return e.Usage(p, err)
	case len(words) != 2:
		fmt.Fprintf(e.Stderr, "Need two file names, have %d names\nTry \"%s --help\" for more information\n", len(words),
			e.Program)
		return e.Failed(1)
	}
	if b.verbose > 0 {
		b.sayOptions(words[0], words[1])
	}
	rc, err := b.run(words[0], words[1])
	if err != nil {
		e.Errorf("%s", env.Text(err))
		rc = 1
	}
	return e.Failed(rc)
}

// run sends the file.
func (b *bcast) run(src, dest string) (rc int, err error) {
	if b.compress != "" {
		fmt.Fprintf(b.Stderr, "%s: %s\n", b.Program, noCompression)
	}
	send, err := openToSend(src, b.Dir)
	if err != nil {
		return 1, err
	}
	defer send.file.Close() //nolint:errcheck // it was only read
	send.piece, send.stall = int(b.piece), time.Duration(b.stall)*time.Second
	if strings.HasSuffix(dest, "/") {
		dest += filepath.Base(src)
	}
	if !filepath.IsAbs(dest) {
		dest = filepath.Join(b.Dir, dest)
	}
	take, err := send.takes(dest, b.preserve)
	if err != nil {
		return 1, err
	}
	take.Force, take.Step = b.force, proto.StepNone
	runs, err := b.runs()
	if err != nil {
		return 1, err
	}
	s := &steps{Env: b.Env, news: make(chan heard, 64)}
	for _, r := range runs {
		if err := r.sends(send, take); err != nil {
			return 1, err
		}
		dir, node, err := r.find()
		if err != nil {
			return 1, err
		}
		s.all = append(s.all, &talk{run: r, steps: s, dir: dir, node: node, id: proto.StepNone})
	}
	return s.main(), nil
}

// runs gives what is to be done: a transfer for each component of the job.
func (b *bcast) runs() ([]*run, error) {
	job := b.job
	if job == "" {
		if job = b.Getenv("SLURM_JOB_ID"); job == "" {
			return nil, errors.New("Need a job id to run this command. Run from within a Slurm allocation or use the --jobid " +
				"option.")
		}
	}
	refs, err := env.ParseStepRefs(job)
	if err != nil || len(refs) != 1 || refs[0].Step == proto.StepBatch || refs[0].Job.Tasks != nil {
		return nil, fmt.Errorf("Invalid job id specified: '%s'; write a job, or a step of it: 12, 12_3, 12+1, 12.0", job)
	}
	parent := refs[0].Step
	if parent == proto.StepAll {
		parent = proto.StepNone
	}
	job, _, _ = strings.Cut(job, ".")
	one := func() *run {
		r := &run{Env: b.Env, job: job, group: noGroup, verbose: b.verbose}
		r.rq.Parent = parent
		return r
	}
	if own := b.Getenv("SLURM_JOB_ID") == job; own && b.Getenv("SLURM_HET_SIZE") == "" {
		return []*run{one()}, nil
	}
	jobs, err := one().lookUpAll(refs[0].Job)
	if err != nil {
		return nil, err
	}
	var all []*run
	for _, j := range jobs {
		r := one()
		r.place = j
		if all = append(all, r); parent != proto.StepNone { // it is in the first one
			break
		}
	}
	return all, nil
}

// openToSend opens the file that is to be sent.
func openToSend(path, dir string) (*sending, error) {
	full := path
	if !filepath.IsAbs(full) {
		full = filepath.Join(dir, full)
	}
	f, err := os.OpenFile(full, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("Can't open `%s`: %w", path, reason(err))
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		_ = f.Close() // it was only opened
		return nil, fmt.Errorf("Can't send `%s`: %w", path, reason(err))
	}
	return &sending{file: f, piece: usualPiece}, nil
}

// takes says what the nodes take in. keep: with the file's times.
func (s *sending) takes(dest string, keep bool) (*proto.StepReceive, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	return &proto.StepReceive{Path: dest, Size: st.Size, Mode: st.Mode & 0o777, Keep: keep, ATime: st.Atim.Nano(),
		MTime: st.Mtim.Nano()}, nil
}

// sends makes the request of a transfer.
func (r *run) sends(s *sending, take *proto.StepReceive) (err error) {
	rq := &r.rq
	rq.Name, rq.Dir, rq.PID, rq.Receive, r.send = r.Program, r.Dir, int32(os.Getpid()), take, s
	rq.Host, _ = os.Hostname() // "" says that it isn't known
	if rq.Limits, err = request.ResourceLimits(""); err != nil {
		return err
	}
	rq.RequestID, err = newRequest()
	return err
}

// newRequest draws an id.
func newRequest() (string, error) {
	var id [16]byte
	if _, err := unix.Getrandom(id[:], 0); err != nil {
		return "", fmt.Errorf("draw a request id: %w", err)
	}
	return hex.EncodeToString(id[:]), nil
}

// sayOptions prints what is asked for, for --verbose.
func (b *bcast) sayOptions(source, dest string) {
	mode := os.FileMode(0)
	if f, err := os.Stat(source); err == nil {
		mode = f.Mode().Perm() // run tells what is wrong with it
	}
	const line = "-----------------------------"
	fmt.Fprintf(b.Stderr, "%s\nblock_size = %d\nforce      = %t\njobid      = %s\nmodes      = %o\npreserve   = %t\n"+
		"timeout    = %d\nverbose    = %d\nsource     = %s\ndest       = %s\n%s\n", line, b.piece, b.force,
		cmp.Or(b.job, b.Getenv("SLURM_JOB_ID")), mode, b.preserve, b.stall, b.verbose, source, dest, line)
}

// saySending says where the file goes, for --verbose.
func (t *talk) saySending() {
	nodes := make([]string, 0, len(t.layout))
	for i := range t.layout {
		nodes = append(nodes, t.layout[i].Node)
	}
	t.tell("jobid %d: %d bytes go to %s on %s", t.rq.Job, t.rq.Receive.Size, t.rq.Receive.Path, hostlist.Compress(nodes))
}

// pour sends the file to all tasks of all steps.
func (s *steps) pour(all []*plumbing) {
	from := s.all[0].send
	buf := make([]byte, from.piece)
	var late *time.Timer
	if from.stall > 0 {
		late = time.AfterFunc(from.stall, func() {
			s.Errorf("the nodes have taken nothing for %v (--timeout)", from.stall)
			for _, t := range s.all {
				t.abort("")
			}
		})
		defer late.Stop()
	}
	left := s.all[0].rq.Receive.Size
	reads := func(pl *plumbing) bool { return len(pl.inputs) > 0 || pl.feeds }
	for off := int64(0); left > 0 && slices.ContainsFunc(all, reads); {
		n, err := from.file.ReadAt(buf[:min(int64(len(buf)), left)], off)
		off, left = off+int64(n), left-int64(n)
		for _, pl := range all {
			pl.pour(buf[:n])
		}
		if late != nil {
			late.Reset(from.stall)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) { // the nodes say that it was cut off
				s.Errorf("%s", reason(err).Error())
			}
			break
		}
	}
	for _, pl := range all {
		pl.endInput()
		if pl.feeds {
			pl.remote.feed(nil)
		}
	}
}

// setBcast reads --bcast: where the nodes put the program.
func (r *run) setBcast(dest string) error {
	if strings.Contains(dest, `\`) {
		return &getopt.TextError{Text: "Invalid --bcast specification: a path with a backslash"}
	}
	r.bcast, r.rq.Copied = true, strings.ReplaceAll(dest, "%", "%%")
	return nil
}

// copyName is the name of a copy for which none was given, as in Slurm.
const copyName = "slurm_bcast_%j.%s_%N"

// settleBcast names the copies of the program.
func (r *run) settleBcast() error {
	if !r.bcast {
		return nil
	}
	if r.multi {
		return errors.New("--bcast copies one program, and --multi-prog has several: send them with gbcast before")
	}
	if r.rq.Container != nil {
		return errors.New("--bcast copies a program to nodes, and the step runs in a container: mount the directory that " +
			"has it with --container-mounts")
	}
	to := &r.rq.Copied
	if *to == "" || strings.HasSuffix(*to, "/") {
		*to += copyName
	}
	if !filepath.IsAbs(*to) {
		*to = filepath.Join(strings.ReplaceAll(r.rq.Dir, "%", "%%"), *to)
	}
	return nil
}

// sendProgram sends the step's program to its nodes (--bcast).
func (t *talk) sendProgram() error {
	if !t.bcast {
		return nil
	}
	send, err := openToSend(t.rq.Program, t.Dir)
	if err != nil {
		return err
	}
	defer send.file.Close() //nolint:errcheck // it was only read
	take, err := send.takes(t.rq.Copied, true)
	if err != nil {
		return err
	}
	take.Force, take.Step = true, t.id
	r := &run{Env: t.Env, job: t.job, group: noGroup, verbose: t.verbose}
	if err := r.sends(send, take); err != nil {
		return err
	}
	r.rq.Job, r.rq.Node, r.rq.Parent, r.rq.Dir = t.rq.Job, t.rq.Node, t.id, t.rq.Dir
	s := &steps{Env: t.Env, news: make(chan heard, 64)}
	s.all = []*talk{{run: r, steps: s, dir: t.dir, node: t.node, id: proto.StepNone}}
	if s.main() != 0 {
		return fmt.Errorf("the program %s could not be sent to the nodes of StepId=%s", t.rq.Program, t.stepID())
	}
	return nil
}

// jobs asks the controllers for what a reference names.
func (r *run) jobs(ref model.JobRef) (found []*model.Job, err error) {
	c, err := r.Connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	err = c.Stream(proto.KindJobs, &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{ref}}},
		func(body []byte) error {
			var chunk proto.JobsChunk
			if err := c.Decode(body, &chunk); err != nil {
				return err
			}
			found = append(found, chunk.Jobs...)
			return nil
		})
	return found, err
}

// lookUpAll asks where a job runs: its components, in order.
func (r *run) lookUpAll(ref model.JobRef) (found []*model.Job, err error) {
	all, err := r.jobs(ref)
	for _, j := range all {
		if j.Run != nil && j.End == nil && (len(found) == 0 || j.Het != nil) {
			found = append(found, j)
		}
	}
	check := fmt.Sprintf("Check SLURM_JOB_ID environment variable. Expired or invalid job %s", r.job)
	waits := slices.ContainsFunc(all, func(j *model.Job) bool { return j.End == nil })
	switch {
	case err != nil:
		return nil, fmt.Errorf("Unable to confirm allocation for job %s: %s\n%s", r.job, env.Text(err), check)
	case len(found) == 0 && waits:
		return nil, fmt.Errorf("Unable to confirm allocation for job %s: %s\n%s", r.job,
			proto.Text(proto.CodeJobPending), check)
	case len(found) == 0:
		return nil, fmt.Errorf("Slurm job %s has expired\n%s", r.job, check)
	}
	return found, nil
}
