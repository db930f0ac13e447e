package ctld

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/seff"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// mail.go sends the mails of --mail-type: the leader calls MailProg as Slurm does, MailProg -s SUBJECT ADDRESS, with
// gseff's summary of an ended job as its input.
//
// The facts queue the mails (internal/state/mail.go). The leader removes them from the facts before it sends them: a
// leader that dies in between loses them, but none is sent twice.

const (
	mailers     = 8                // mail programs that run at once
	mailBatch   = 32               // mails that are taken at once
	mailTimeout = 30 * time.Second // for one mail program
	mailGrace   = 3 * time.Second  // for programs that run when the controller stops leading
	mailPace    = 200 * time.Millisecond
)

// addressMail checks the addressees of a job's mails, and fills in its user if none is given.
func addressMail(v *state.View, sp *model.Spec) error {
	w := sp.Mail()
	if w == nil {
		return nil
	}
	m, mail := *sp.More, *w
	if mail.User == "" {
		if mail.User = sp.User; v.Config().Params.MailDomain != "" {
			mail.User += "@" + v.Config().Params.MailDomain
		}
	}
	if err := model.CheckMailUser(mail.User); err != nil {
		return refuse(proto.CodeBadRequest, "--mail-user: %v", err)
	}
	m.Mail, sp.More = &mail, &m
	return nil
}

// editMail sets the addressees or the types of a job's mails. Addressees stay without a type, as in Slurm: one that is
// set later finds them.
func editMail(v *state.View, sp *model.Spec, key, value string) error {
	m, mail := sp.Extra(), model.MailWish{}
	if m.Mail != nil {
		mail = *m.Mail
	}
	if key == "mailtype" {
		types, err := model.ParseMailTypes(value)
		if err != nil {
			return err
		}
		mail.Types = types
	} else {
		mail.User = value
	}
	m.Mail = &mail
	sp.More = &m
	if mail == (model.MailWish{}) {
		m.Mail = nil
		return nil
	}
	return addressMail(v, sp)
}

// sendMails sends waiting mails until ctx ends, and returns when no mail program runs any more.
func (c *Controller) sendMails(ctx context.Context) {
	pace := pacer{gap: mailPace}
	full := false
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		var mails []*state.Mail
		last, waiting := uint64(0), 0
		v.Mails(func(seq uint64, m *state.Mail) bool {
			if waiting++; len(mails) < mailBatch {
				last, mails = seq, append(mails, m)
			}
			return waiting < state.MaxMails
		})
		if is := waiting >= state.MaxMails; is != full {
			if full = is; full {
				c.log.Error("mail is dropped: MailProg is slower than jobs start and end", "waiting", waiting, "program",
					v.Config().Params.MailProg)
			}
		}
		if len(mails) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if _, err := c.propose(ctx, &state.Mailed{Seq: last}); err != nil {
			pause(ctx, waitPace)
			continue
		}
		c.sendBatch(ctx, v, mails)
	}
}

// sendBatch sends mails, in order for each job or array, and returns when all have been tried.
func (c *Controller) sendBatch(leading context.Context, v *state.View, mails []*state.Mail) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(leading))
	defer cancel()
	stop := context.AfterFunc(leading, func() { time.AfterFunc(mailGrace, cancel) })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, mailers)
	about := map[model.JobID][]*state.Mail{}
	var order []model.JobID
	for _, m := range mails {
		root := m.Job.ArrayID
		if root == 0 {
			root = m.Job.ID
		}
		if about[root] == nil {
			order = append(order, root)
		}
		about[root] = append(about[root], m)
	}
	for _, root := range order {
		slots <- struct{}{} // a slot becomes free within the time limits of one job's mails
		wg.Go(func() {
			defer func() { <-slots }()
			for _, m := range about[root] {
				c.sendMail(ctx, v, m)
			}
		})
	}
}

// sendMail runs MailProg once. A failure does not affect the job.
func (c *Controller) sendMail(parent context.Context, v *state.View, m *state.Mail) {
	if v.Config().Params.MailProg == "" {
		return
	}
	text := newLetter(m, c.now())
	text.by = preemptorOf(v, m.Job)
	c.runMailProg(parent, v, m.Job, text.subject(), text.env(), text.body(c.recordOf(v, 0, m.Job)))
}

// runMailProg sends one mail about a job to the job's addressees.
func (c *Controller) runMailProg(parent context.Context, v *state.View, j *model.Job, subject string, env []string,
	body string) {
	path, users := v.Config().Params.MailProg, j.Spec.Mail().User
	p := program.Call{Argv: []string{path, "-s", subject, users}, Env: append(programEnv(j, v.Config().Cluster), env...),
		Stdin: []byte(body), Limit: mailTimeout}
	err := p.Run(parent)
	switch {
	case parent.Err() != nil:
		err = errors.New("another controller leads now")
	case errors.Is(err, program.ErrLate):
		err = fmt.Errorf("it was killed after %s", mailTimeout)
	}
	if err != nil {
		c.log.Warn("MailProg failed; this mail is lost", "program", path, "job", j.ID, "to", users, "subject", subject, "err",
			err, "output", p.Said.Line())
	}
}

// letter is the content of a mail, in Slurm's words.
type letter struct {
	*state.Mail
	word string // what happened
	by   string // the job for which it was preempted; "": it was not
	at   model.Time
}

func newLetter(m *state.Mail, now model.Time) *letter {
	word := map[model.MailTypes]string{model.MailBegin: "Began", model.MailEnd: "Ended", model.MailFail: "Failed",
		model.MailRequeue:       "Requeued",
		model.MailInvalidDepend: "Invalid dependency", model.MailLimit: "Reached time limit",
		model.MailLimit90: "Reached 90% of time limit",
		model.MailLimit80: "Reached 80% of time limit", model.MailLimit50: "Reached 50% of time limit"}[m.What]
	return &letter{Mail: m, word: word, at: now}
}

func (l *letter) subject() string {
	j := l.Job
	name := plain.Line(j.Spec.Name)
	switch {
	case l.Array != nil:
		return fmt.Sprintf("Slurm Array Summary Job_id=%d_* (%d) Name=%s %s%s", j.ArrayID, j.ArrayID, name, l.word,
			l.outcome())
	case j.ArrayID != 0 && j.Task != model.NoTask:
		return fmt.Sprintf("Slurm Array Task Job_id=%d_%d (%d) Name=%s %s%s", j.ArrayID, j.Task, j.ID, name, l.word,
			l.outcome())
	}
	return fmt.Sprintf("Slurm Job_id=%d Name=%s %s%s", j.ID, name, l.word, l.outcome())
}

// outcome gives the part of the subject after the word.
func (l *letter) outcome() string {
	switch l.What {
	case model.MailBegin:
		if l.Array == nil {
			return ", Queued time " + walltime.Elapsed(l.queuedS())
		}
	case model.MailEnd, model.MailFail:
		if l.Array == nil {
			return fmt.Sprintf(", Run time %s, %s, ExitCode %d", walltime.Elapsed(l.Job.ElapsedS(l.at)), l.Job.State,
				l.Job.End.Exit.Code)
		}
		text := ", " + l.arrayState()
		if l.Array.MaxSignal > 0 {
			text += fmt.Sprintf(", MaxSignal [%d]", l.Array.MaxSignal)
		} else {
			text += fmt.Sprintf(", ExitCode [%d-%d]", l.Array.LeastExit, l.Array.MostExit)
		}
		if l.Array.Back {
			text += ", with requeued tasks"
		}
		return text
	case model.MailInvalidDepend:
	case model.MailRequeue:
		text := ", Run time " + walltime.Elapsed(l.Job.ElapsedS(l.at))
		if l.by != "" {
			by, _, _ := strings.Cut(l.by, " (")
			text += ", preempted by " + by
		}
		return text
	default:
		return ", Run time " + walltime.Elapsed(l.Job.ElapsedS(l.at))
	}
	return ""
}

// preemptorOf names the job for which a job was preempted, by what its owner may know of it; "": it was not.
func preemptorOf(v *state.View, j *model.Job) string {
	if j.State != model.Preempted || j.Run == nil || j.Run.StopFor == 0 {
		return ""
	}
	text, by := fmt.Sprintf("job %d", j.Run.StopFor), v.Job(j.Run.StopFor)
	if slices.Contains(v.Config().Params.PrivateData, "jobs") && (by == nil || by.Spec.UID != j.Spec.UID) {
		text = "another user's job" // who may see more looks for it
	}
	if by != nil {
		text += fmt.Sprintf(" (partition %s, QOS %s)", by.Partition(), by.Spec.QOS)
	}
	return text
}

// arrayState gives the final state of an array's tasks: one state, or Mixed.
func (l *letter) arrayState() string {
	switch a := l.Array; {
	case a.Failed == 0:
		return model.Completed.String()
	case a.Ill == a.Total:
		return model.Failed.String()
	case a.Ill == 0 && a.Failed == a.Total:
		return model.Cancelled.String()
	}
	return "Mixed"
}

func (l *letter) queuedS() int64 {
	from := l.Job.Eligible
	if from == 0 {
		from = l.Job.Submit
	}
	return max(0, l.Job.Run.Start.Seconds()-from.Seconds())
}

// env has MailProg's variables besides those of all programs.
func (l *letter) env() []string {
	j := l.Job
	env := []string{"SLURM_JOB_MAIL_TYPE=" + l.word, "SLURM_JOB_STATE=" + stateWord(j)}
	num := func(name string, n int64) { env = append(env, name+"="+strconv.FormatInt(n, 10)) }
	if j.Run != nil {
		if l.What == model.MailBegin {
			env = append(env, "SLURM_JOB_QUEUED_TIME="+walltime.Elapsed(l.queuedS()))
		} else {
			env = append(env, "SLURM_JOB_RUN_TIME="+walltime.Elapsed(j.ElapsedS(l.at)))
		}
	}
	if e := j.End; e != nil {
		env = append(env, exitEnv(e.Exit)...)
		num("SLURM_JOB_END_TIME", e.At.Seconds())
		if code := int64(e.Exit.Code); l.Array == nil && l.What&(model.MailEnd|model.MailFail) != 0 {
			if e.Exit.Signal != 0 {
				code = 0 // as in Slurm
			}
			num("SLURM_JOB_EXIT_CODE_MAX", code)
		}
	}
	if l.Array != nil && l.What != model.MailBegin {
		num("SLURM_JOB_EXIT_CODE_MIN", int64(l.Array.LeastExit))
		num("SLURM_JOB_EXIT_CODE_MAX", int64(l.Array.MostExit))
	}
	return env
}

// body is the mail's text: Slurm's mails have none. r is the job's record.
func (l *letter) body(r *model.Record) string {
	var b bytes.Buffer
	if l.Array != nil {
		if a := l.Array; l.What != model.MailBegin {
			fmt.Fprintf(&b, "Tasks: %d, %d of them COMPLETED, %d CANCELLED, %d failed\n", a.Total, a.Total-a.Failed,
				a.Failed-a.Ill, a.Ill)
			fmt.Fprintf(&b, "Exit codes: %d to %d\nEach task: gacct -j %d; gseff %d\n", a.LeastExit, a.MostExit, a.ID, a.ID)
		}
		return b.String()
	}
	if l.What&(model.MailEnd|model.MailFail) == 0 {
		switch l.What {
		case model.MailBegin:
			fmt.Fprintf(&b, "Nodes: %s\n", r.Nodes)
		case model.MailInvalidDepend:
			fmt.Fprintf(&b, "The job waits for %s, which can't happen any more. gcancel %d takes it out of the queue;\n"+
				"gcontrol update jobid=%d dependency= lets it run all the same.\n", l.Job.Spec.DepText, l.Job.ID, l.Job.ID)
		case model.MailRequeue:
			if l.by != "" {
				fmt.Fprintf(&b, "The job was preempted by %s.\n", l.by)
			}
			fmt.Fprintf(&b, "The job is back in the queue and will run again.\n")
		}
		return b.String()
	}
	fmt.Fprintf(&b, "Job ID: %d\nCluster: %s\nState: %s (exit code %d)\n", r.Job, r.Cluster, r.State, seff.ExitShown(r))
	if l.by != "" {
		fmt.Fprintf(&b, "Reason: preempted by %s\n", l.by)
	} else if r.Why != "" {
		fmt.Fprintf(&b, "Reason: %s\n", plain.Line(r.Why))
	}
	if r.Start != 0 {
		fmt.Fprintf(&b, "Nodes: %s\n", r.Nodes)
		j := seff.Of(r, nil, l.at)
		j.Write(&b)
		if tip := j.Advice(); tip != "" {
			fmt.Fprintf(&b, "Next time: %s\n", tip)
		}
	}
	out, errFile := l.Job.OutputFiles()
	fmt.Fprintf(&b, "Working directory: %s\nOutput: %s\n", plain.Line(r.WorkDir), plain.Line(out))
	if errFile != out {
		fmt.Fprintf(&b, "Errors: %s\n", plain.Line(errFile))
	}
	return b.String()
}

// stateWord gives a job's state for mail programs: a job that has just started counts as running.
func stateWord(j *model.Job) string {
	if j.State == model.Configuring {
		return model.Running.String()
	}
	return j.State.String()
}
