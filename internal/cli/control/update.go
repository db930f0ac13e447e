package control

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// update.go reads what update, create and delete are about: the kind of thing, its name, and KEY=VALUE words.

// kinds of things by the key that names them; any beginning of at least so many letters will do.
var kinds = []struct {
	key   string
	least int
	kind  string
}{
	{"jobid", 3, "job"}, {"jobs", 4, "job"},
	{"stepid", 4, "step"},
	{"nodename", 4, "node"}, {"nodenames", 4, "node"},
	{"partitionname", 4, "partition"},
	{"reservationname", 3, "reservation"},
}

// kindOf gives the kind of thing that a key names, "" for another key.
func kindOf(key string) string {
	low := strings.ToLower(key)
	for _, k := range kinds {
		if len(low) >= k.least && strings.HasPrefix(k.key, low) {
			return k.kind
		}
	}
	return ""
}

// change is what a command is to change.
type change struct {
	kind string // of kinds; "": nothing was named
	name string
	set  []model.KV
}

// changeOf reads the words behind update, create or delete: TYPE NAME or TYPE=NAME first, or TYPE= anywhere, then
// KEY=VALUE, or KEY VALUE.
func (c *control) changeOf(words []string) (*change, error) {
	ch := &change{}
	rest := words
	for _, w := range words { // a job may be given a partition or a reservation, in any order
		if key, _, has := strings.Cut(w, "="); has && kindOf(key) == "job" {
			ch.kind = "job"
		}
	}
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		if ch.kind = kindOf(words[0]); ch.kind == "" {
			return nil, plain{fmt.Errorf("No valid entity in %s command: '%s' is not KEY=VALUE, nor is it job, node, partition "+
				"or reservation\n%s", c.verb, words[0], mustInclude)}
		}
		if rest = words[1:]; len(rest) > 0 && (!strings.Contains(rest[0], "=") || kindOf(before(rest[0])) == ch.kind) {
			ch.name, rest = rest[0], rest[1:]
			if key, name, has := strings.Cut(ch.name, "="); has && kindOf(key) == ch.kind {
				ch.name = name
			}
		}
	}
	for i := 0; i < len(rest); i++ {
		key, value, has := strings.Cut(rest[i], "=")
		switch {
		case has:
		case strings.EqualFold(key, "skip"): // of reservations
		case strings.EqualFold(key, "nice") && ch.kind == "job":
			value = "100" // as --nice alone
		case i+1 < len(rest) && !strings.Contains(rest[i+1], "="):
			value = rest[i+1]
			i++
		default:
			return nil, fmt.Errorf("'%s' is not KEY=VALUE; quote values that hold blanks, as in Reason=\"bad fan\"", key)
		}
		switch kind := kindOf(key); {
		case kind == "", kind == "partition" && ch.kind == "job", kind == "reservation" && ch.kind == "job",
			kind == "partition" && ch.kind == "reservation", kind == "node" && ch.kind == "reservation":
			ch.set = append(ch.set, model.KV{Key: key, Value: value})
		case ch.kind == "", ch.kind == kind && ch.name == "":
			if strings.TrimSpace(value) == "" {
				return nil, fmt.Errorf("%s= names nothing; write JobId=12,13, NodeName=n[1-4], PartitionName=main or "+
					"ReservationName=maint", key)
			}
			ch.kind, ch.name = kind, value
		case kind == "node" && ch.kind == "job":
			ch.set = append(ch.set, model.KV{Key: key, Value: value})
		default:
			return nil, fmt.Errorf("%s stands beside another %s: one command changes one kind of thing, and names all of it "+
				"in one list, such as JobId=12,13 or NodeName=n[1-4]", rest[i], ch.kind)
		}
	}
	return ch, nil
}

func before(word string) string {
	key, _, _ := strings.Cut(word, "=")
	return key
}

// mustInclude ends the complaint about a command that names nothing to change, as in scontrol.
const mustInclude = "Input line must include \"NodeName\", \"PartitionName\", \"Reservation\", \"JobId\", or " +
	"\"StepId\", as in JobId=12, NodeName=n[1-4], PartitionName=main or ReservationName=maint"

// update changes jobs, nodes, a partition or a reservation.
func (c *control) update(words []string) error {
	if len(words) == 0 {
		return tooFew("too few arguments for update keyword", mustInclude)
	}
	if len(words[0]) > 8 && strings.HasPrefix(strings.ToLower(words[0]), "suspendexc") {
		return c.changeSpare(words)
	}
	ch, err := c.changeOf(words)
	if err != nil {
		return err
	}
	switch ch.kind {
	case "job":
		refs, err := env.ParseJobRefs(ch.name)
		if err != nil {
			return err
		}
		if len(refs) == 0 {
			return fmt.Errorf("JobId=%s names no job; write JobId=12 or JobId=12,13_4", ch.name)
		}
		return c.updateJobs(refs, ch.set)
	case "node":
		if len(ch.set) == 0 {
			return errors.New("nothing to change: give KEY=VALUE words behind the nodes, such as State=DRAIN " +
				"Reason=\"bad fan\"")
		}
		return c.changeNodes(proto.ChangeNodes, ch, "slurm_update error")
	case "partition":
		return c.partition(proto.ChangePartition, ch, "slurm_update error")
	case "reservation":
		if err := c.resvWords(ch.set); err != nil {
			return err
		}
		return c.updateReservation(ch.name, ch.set)
	case "step":
		return c.updateStep(ch)
	}
	if refs, set, err := c.jobsByName(ch.set); refs != nil || err != nil {
		if err != nil {
			return err
		}
		return c.updateJobs(refs, set)
	}
	for _, kv := range ch.set {
		if strings.EqualFold(kv.Key, "SlurmctldDebug") {
			return fmt.Errorf("%s is set by gcontrol setdebug %s", kv.Key, kv.Value)
		}
	}
	return plain{errors.New("No valid entity in update command\n" + mustInclude)}
}

// updateStep gives a step, or all steps of a job, another time limit.
func (c *control) updateStep(ch *change) error {
	refs, err := env.ParseStepRefs(ch.name)
	if err != nil {
		return err
	}
	if len(refs) != 1 {
		return errors.New("write StepId=JOB.STEP, or StepId=JOB for all steps of a job")
	}
	c.limits(ch.set)
	set := append([]model.KV{{Key: "Step", Value: strconv.Itoa(int(refs[0].Step))}}, ch.set...)
	return c.apply(&proto.UpdateJobRequest{Action: proto.ActStep, Targets: []model.JobRef{refs[0].Job}, Set: set})
}

func (c *control) updateJobs(refs []model.JobRef, set []model.KV) error {
	if err := c.moments(set, "starttime", "deadline", "begintime", "eligibletime", "endtime"); err != nil {
		return err
	}
	c.limits(set)
	for _, ref := range refs {
		own, err := c.endTime(ref, set)
		if err != nil {
			return err
		}
		targets := []model.JobRef{ref}
		if len(own) == 0 || &own[0] == &set[0] { // the same for all
			own, targets = set, refs
		}
		if err := c.apply(&proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: targets, Set: own}); err != nil {
			return err
		}
		if len(targets) == len(refs) {
			break
		}
	}
	if len(refs) == 1 && slices.ContainsFunc(set, func(kv model.KV) bool {
		return slices.Contains(sizeWords, strings.ToLower(kv.Key)) && kv.Value != "0"
	}) {
		return c.sizeFiles(refs[0])
	}
	return nil
}

// resize makes a running job give nodes up, from within if no job is named.
func (c *control) resize(args []string) error {
	id, set := c.OwnJob(), []model.KV{{Key: "NumNodes", Value: "AGREED"}}
	if len(args) > 0 && !strings.Contains(args[0], "=") {
		id, args = args[0], args[1:]
	}
	if id == "" {
		return errors.New("resize [JOBID] [NumNodes=N|NodeList=NODES]: outside of a job, name one")
	}
	if len(args) > 0 {
		key, value, ok := strings.Cut(args[0], "=")
		if !ok || len(args) > 1 || !slices.Contains(sizeWords, strings.ToLower(key)) {
			return fmt.Errorf("%s: resize takes NumNodes=N or NodeList=NODES, the nodes that the job keeps",
				strings.Join(args, " "))
		}
		set[0] = model.KV{Key: key, Value: value}
	}
	refs, err := env.ParseJobRefs(id)
	if err != nil {
		return err
	}
	return c.apply(&proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: refs, Set: set})
}

// sizeWords change the nodes of a running job.
var sizeWords = []string{"numnodes", "minnodes", "reqnodes", "reqnodelist", "nodelist"}

// sizeFiles writes, for a job that runs, the files by which its shell learns of its nodes, as in Slurm. They are made
// new, and take the place of whatever has the name: nothing is written through a link that somebody has put there.
func (c *control) sizeFiles(ref model.JobRef) error {
	var job *model.Job
	err := c.eachJob(&proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{ref}}}, nil,
		func(j *model.Job, _ model.Time) { job = j })
	if err != nil || job == nil || job.State != model.Running || job.Run == nil || job.Run.Alloc == nil {
		return err
	}
	names := job.Run.Alloc.NodeNames()
	list, n := hostlist.CompressInOrder(names), strconv.Itoa(len(names))
	vars := [][2]string{{"SLURM_NODELIST", list}, {"SLURM_JOB_NODELIST", list}, {"SLURM_NNODES", n},
		{"SLURM_JOB_NUM_NODES", n}, {"SLURM_JOB_CPUS_PER_NODE", jobenv.PerNode(job.Run.Alloc,
			func(na *model.NodeAlloc) int { return na.CPUs.Count() })}}
	var sh, csh strings.Builder
	for _, v := range vars {
		fmt.Fprintf(&sh, "export %s=\"%s\"\n", v[0], v[1])
		fmt.Fprintf(&csh, "setenv %s \"%s\"\n", v[0], v[1])
	}
	for _, name := range [...]string{"SLURM_NPROCS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"} {
		fmt.Fprintf(&sh, "unset %s\n", name)
		fmt.Fprintf(&csh, "unsetenv %s\n", name)
	}
	name := fmt.Sprintf("slurm_job_%d_resize", job.ID)
	for ending, text := range map[string]string{".sh": sh.String(), ".csh": csh.String()} {
		if err := replaceFile(name+ending, text); err != nil {
			return fmt.Errorf("job %d has changed its nodes; the file for its shell could not be written: %w", job.ID, err)
		}
	}
	if !c.quiet {
		fmt.Fprintf(c.Stdout, "To reset Slurm environment variables, execute\n"+
			"  For bash or sh shells:  . ./%s.sh\n  For csh shells:         source ./%[1]s.csh\n", name)
	}
	return nil
}

// replaceFile makes a file that its owner may execute, in place of what has its name.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(".", name+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o700), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says what is wrong
	}
	return err
}

// jobsByName finds the jobs that JobName= and UserID= name, where no JobId does; nil: there is no JobName.
func (c *control) jobsByName(set []model.KV) (refs []model.JobRef, rest []model.KV, err error) {
	name, who := "", ""
	for _, kv := range set {
		switch strings.ToLower(kv.Key) {
		case "jobname", "name":
			name = kv.Value
		case "userid", "user":
			who = kv.Value
		default:
			rest = append(rest, kv)
		}
	}
	if name == "" {
		return nil, nil, nil
	}
	uid := uint64(os.Getuid())
	if who != "" {
		if uid, err = strconv.ParseUint(who, 10, 32); err != nil {
			u, err := user.Lookup(who)
			if err != nil {
				return nil, nil, fmt.Errorf("UserID=%s: %w", who, err)
			}
			if uid, err = strconv.ParseUint(u.Uid, 10, 32); err != nil {
				return nil, nil, err
			}
		}
	}
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Names: []string{name}}, Default: true}
	err = c.eachJob(rq, nil, func(j *model.Job, _ model.Time) {
		if uint64(j.Spec.UID) == uid {
			refs = append(refs, j.Ref())
		}
	})
	if err == nil && len(refs) == 0 {
		err = fmt.Errorf("No jobs with user ID %d and name %s", uid, name)
	}
	return refs, rest, err
}

// partition sends a change of partitions, each by itself.
func (c *control) partition(action proto.PartAction, ch *change, failed string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var bad []string // the others are changed all the same
	for _, name := range strings.Split(ch.name, ",") {
		if err := cl.Call(proto.KindUpdatePartition,
			&proto.UpdatePartitionRequest{Action: action, Name: name, Set: ch.set}, &proto.Empty{}); err != nil {
			bad = append(bad, fmt.Sprintf("%s: %s", failed, env.Text(err)))
		}
	}
	if bad == nil {
		return nil
	}
	return plain{errors.New(strings.Join(bad, "\n"))}
}

// create makes a reservation, a partition or dynamic nodes.
func (c *control) create(words []string) error {
	const forms = "PartitionName=NAME Nodes=..., NodeName=NAMES CPUs=..., or Reservation=NAME StartTime=... " +
		"Duration=... Nodes=... Users=..."
	if len(words) == 0 {
		return tooFew("too few arguments for create keyword", forms)
	}
	if kindOf(before(words[0])) == "" {
		return fmt.Errorf("Invalid creation entity: %s; write %s", words[0], forms)
	}
	ch, err := c.changeOf(words)
	if err != nil {
		return err
	}
	switch ch.kind {
	case "reservation":
		if err := c.resvWords(ch.set); err != nil {
			return err
		}
		return c.createReservation(ch)
	case "partition":
		if ch.name == "" {
			return errors.New("PartitionName must be given.  No partition created.")
		}
		return c.partition(proto.CreatePartition, ch, "Error creating the partition")
	case "node":
		return c.changeNodes(proto.CreateNodes, ch, "Error creating node(s)")
	}
	return fmt.Errorf("Invalid creation entity: %s; write %s", words[0], forms)
}

// remove deletes a reservation, a partition or dynamic nodes.
func (c *control) remove(words []string) error {
	const forms = "ReservationName=NAME, PartitionName=NAME or NodeName=NAMES; jobs end with gcancel"
	if len(words) == 0 {
		return tooFew("too few arguments for delete keyword", forms)
	}
	bad := plain{fmt.Errorf("Invalid deletion entity: %s; write %s", words[0], forms)}
	if kindOf(before(words[0])) == "" {
		return bad
	}
	ch, err := c.changeOf(words)
	switch {
	case err != nil:
		return err
	case ch.name == "" || len(ch.set) > 0:
	case ch.kind == "reservation":
		return c.reserve(&proto.ReserveRequest{Action: proto.DeleteReservation, Name: ch.name},
			"delete_reservation "+words[0], "")
	case ch.kind == "partition":
		return c.partition(proto.DeletePartition, ch, "delete_partition "+words[0])
	case ch.kind == "node":
		return c.changeNodes(proto.DeleteNodes, ch, "delete_node "+words[0])
	}
	return bad
}
