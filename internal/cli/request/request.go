package request

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// New turns the options into the message for the controller.
func New(e *env.Env, s *Submission, body []byte) (*proto.SubmitRequest, error) {
	sp := &s.Spec
	sp.WorkDir = e.Dir
	if s.Chdir != "" {
		sp.WorkDir = s.Chdir
		if !filepath.IsAbs(sp.WorkDir) {
			sp.WorkDir = filepath.Join(e.Dir, sp.WorkDir)
		}
		sp.WorkDir = filepath.Clean(sp.WorkDir)
	}
	sp.Submit = e.Program
	for _, a := range e.Args {
		sp.Submit += " " + a
	}
	if len(sp.Submit) > proto.MaxFieldBytes {
		sp.Submit = sp.Submit[:proto.MaxFieldBytes]
	}
	sp.Umask = Umask(e)
	if sid, err := unix.Getsid(0); err == nil {
		sp.SID = int32(sid)
	}
	sp.LimitS, s.More.TimeMinS = e.WholeMinutes(sp.LimitS), e.WholeMinutes(s.More.TimeMinS)
	if err := s.arbitrary(e.Getenv("SLURM_HOSTFILE")); err != nil {
		return nil, err
	}
	if err := s.settle(); err != nil {
		return nil, err
	}
	var err error
	sp.OwnLimits = s.limitsOn
	if sp.Limits, err = ResourceLimits(s.limits); err != nil {
		return nil, err
	}
	env, err := Environment(e, s)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	if _, err := unix.Getrandom(id[:], 0); err != nil {
		return nil, fmt.Errorf("draw a request id: %w", err)
	}
	return &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp, Script: body, Env: env,
		TestOnly: s.TestOnly}, nil
}

// arbitrary completes --distribution=arbitrary, which the file of SLURM_HOSTFILE means too: it or --nodelist has the
// node of each task. A node that has several has the CPUs for them.
func (s *Submission) arbitrary(hostFile string) (err error) {
	sp := &s.Spec
	given := s.More.Bind != nil && s.More.Bind.Dist != "" && !strings.HasPrefix(s.More.Bind.Dist, "arbitrary")
	if len(s.hosts) == 0 && hostFile != "" && !given {
		if s.hosts, err = NodeFile(hostFile); err != nil {
			return fmt.Errorf("SLURM_HOSTFILE: %w", err)
		}
		if len(s.hosts) == 0 {
			return fmt.Errorf("SLURM_HOSTFILE: %s names no node", hostFile)
		}
		s.Binding().Dist = "arbitrary"
	}
	b := s.More.Bind
	if b == nil || !strings.HasPrefix(b.Dist, "arbitrary") {
		return nil
	}
	if len(s.hosts) == 0 {
		return errors.New("With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option")
	}
	if n := int(sp.Tasks); n > 0 && n < len(s.hosts) {
		s.hosts = s.hosts[:n]
	}
	if sp.ReqNodes = once(s.hosts); len(sp.ReqNodes) == len(s.hosts) {
		return nil
	}
	b.Hosts = strings.Join(s.hosts, ",")
	if sp.Tasks == 0 && sp.TasksPerNode == 0 {
		sp.Tasks = int32(len(s.hosts))
	}
	tasks, most := map[string]int32{}, int32(0)
	for _, name := range s.hosts {
		tasks[name]++
		most = max(most, tasks[name])
	}
	sp.MinCPUs = max(sp.MinCPUs, most*max(sp.CPUsPerTask, 1))
	return nil
}

// settle completes the request once all options are known.
func (s *Submission) settle() error {
	s.Spec.Append, s.Spec.OwnMode = s.openMode == "a", s.openMode != ""
	if s.mail != (model.MailWish{}) {
		s.More.Mail = &s.mail
	}
	if s.coreSpec && s.threadSpec {
		return errors.New("-S/--core-spec and --thread-spec options are mutually exclusive")
	}
	if err := s.batchNode(); err != nil {
		return err
	}
	s.layoutTasks()
	if sp := &s.Spec; sp.MaxNodes > 0 && len(sp.ReqNodes) > int(sp.MaxNodes) {
		return fmt.Errorf("invalid number of nodes (-N %d-%d): --nodelist names more nodes than --nodes allows",
			len(sp.ReqNodes), sp.MaxNodes)
	}
	if sp := &s.Spec; len(sp.ReqNodes) <= int(sp.Tasks) {
		if text := FewerNodes(sp.Tasks, &sp.MinNodes, &sp.MaxNodes); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
	}
	if text := TasksPerNode(s.Spec.Tasks, s.Spec.MaxNodes, &s.Spec.TasksPerNode); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	return s.Settle()
}

// batchNode checks --batch, the features of the node that runs the script. That is the job's first node, so all nodes
// have to have them: each alternative of --constraint includes one of --batch.
func (s *Submission) batchNode() error {
	if s.batch == "" {
		return nil
	}
	const bad = "Batch job submission failed: Job --batch option is invalid or not a subset of --constraints"
	if strings.ContainsAny(s.Spec.Features+s.batch, "[](*") {
		return fmt.Errorf("%s: write features with & and | between them, without brackets and counts", bad)
	}
	s.Stated().BatchNode = s.batch
	some := false // of the alternatives
	all := true
	for one := range strings.SplitSeq(s.Spec.Features, "|") {
		node := features(one)
		has := slices.ContainsFunc(strings.Split(s.batch, "|"), func(want string) bool {
			list := features(want)
			return len(list) > 0 && !slices.ContainsFunc(list, func(f string) bool { return !slices.Contains(node, f) })
		})
		some, all = some || has, all && has
	}
	switch {
	case !some:
		return errors.New(bad)
	case !all:
		return fmt.Errorf("%s: the script runs on the job's first node, whichever that is, and --constraint=%s lets it be "+
			"one without --batch=%s; make a component of the script's node: gsubmit -N1 -C %[3]s : -C OTHERS", bad,
			s.Spec.Features, s.batch)
	}
	return nil
}

// features are the words of a list that all count.
func features(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == '&' || r == ',' })
}

// FewerNodes takes back nodes that would have no task, and says so in Slurm's words; "": there are none.
func FewerNodes(tasks int32, least, most *int32) string {
	if tasks < 1 || *least <= tasks {
		return ""
	}
	text := fmt.Sprintf("can't run %d processes on %d nodes, setting nnodes to %d", tasks, *least, tasks)
	*least, *most = tasks, min(*most, tasks)
	return text
}

// TasksPerNode takes back a --ntasks-per-node with which the nodes hold too few tasks, and says so in Slurm's words.
func TasksPerNode(tasks, nodes int32, each *int32) string {
	if tasks < 1 || nodes < 1 || *each < 1 || int64(nodes)*int64(*each) >= int64(tasks) {
		return ""
	}
	text := fmt.Sprintf("can't honor --ntasks-per-node set to %d which doesn't match the requested tasks %d with the "+
		"maximum number of requested nodes %d. Ignoring --ntasks-per-node.", *each, tasks, nodes)
	*each = 0
	return text
}

// ToStart says when and where a job of --test-only could start, in sbatch's words.
func ToStart(r *proto.SubmitReply) string {
	job := ""
	if r.Job != 0 { // an older controller gives none
		job = fmt.Sprintf("%d ", r.Job)
	}
	return fmt.Sprintf("Job %sto start at %s using %d processors on nodes %s in partition %s", job,
		time.UnixMilli(int64(r.TestStart)).Format("2006-01-02T15:04:05"), r.TestCPUs, r.TestNodes, r.TestPart)
}

// Propagated are the options of a component of a heterogeneous job that hold for the next ones too, unless they have
// their own (https://slurm.schedmd.com/heterogeneous_jobs.html).
var Propagated = []string{"account", "acctg-freq", "begin", "clusters", "comment", "deadline", "dependency",
	"distribution", "epilog", "error", "export", "export-file", "exclude", "get-user-env", "hold", "immediate", "input",
	"job-name", "kill-on-bad-exit", "label", "no-kill", "no-requeue", "nice", "open-mode", "output", "overcommit",
	"parsable", "priority", "prolog", "propagate", "pty", "qos", "quiet", "quit-on-interrupt", "reservation", "requeue",
	"signal", "task-epilog", "task-prolog", "test-only", "time", "time-min", "unbuffered", "verbose", "wait", "chdir",
	"mpi", "jobid", "kill-on-invalid-dep"}

// Whole turns the components of a heterogeneous job into one message: the first one's, with the descriptions of the
// others.
func Whole(e *env.Env, all []*Submission, body []byte) (*proto.SubmitRequest, error) {
	rq, err := New(e, all[0], body)
	if err != nil {
		return nil, err
	}
	for i, s := range all {
		if len(all) > 1 && s.Elastic.Max > 0 {
			return nil, fmt.Errorf("component %d: --elastic is for jobs of one component; their nodes come together", i)
		}
		if len(all) > 1 && s.More.NoKill {
			return nil, fmt.Errorf("component %d: --no-kill is for jobs of one component: a heterogeneous job ends with the "+
				"first of its nodes that fails, or is requeued", i)
		}
	}
	for i, s := range all[1:] {
		one, err := New(e, s, nil)
		if err != nil {
			return nil, fmt.Errorf("component %d: %w", i+1, err)
		}
		rq.Rest = append(rq.Rest, one.Spec)
	}
	if len(all) > 1 && all[0].Each != "" {
		return nil, errors.New("--each submits jobs of one component; submit each heterogeneous job by itself")
	}
	return rq, nil
}

// From reads options that are not of a command line, such as the members of a job that is described in another way:
// --NAME=VALUE words of gsubmit's table. It reads nothing of this process and opens no file; options about the command
// itself and about files on its host are refused.
func From(words []string, moment func(string) (model.Time, error)) (*Submission, error) {
	s := &Submission{}
	for _, w := range words {
		name, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
		if slices.Contains(ofThisHost, name) {
			return nil, fmt.Errorf("--%s is for commands only", name)
		}
	}
	p := getopt.New(getopt.Config{Program: "job", Options: s.Options(moment), Order: getopt.StopAtOperand})
	rest, err := p.Args(words)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("'%s' is no option", rest[0])
	}
	if err := p.Apply(); err != nil {
		return nil, err
	}
	return s, s.settle()
}

// ofThisHost are options that look at the host on which they are read.
var ofThisHost = []string{"nodefile", "export", "export-file", "get-user-env", "propagate", "uid", "gid", "clusters",
	"cluster",
	"wrap", "each", "wait", "chdir", "workdir"}

// NoHet refuses a heterogeneous job where it can't be described yet; word has requested it.
func NoHet(word string) string {
	return "heterogeneous jobs (" + word + ") can't be submitted this way yet; submit them with gsubmit a : b"
}
