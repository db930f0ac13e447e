package state

import (
	"fmt"
	"io"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/wire"
)

// snapshotFormat is the first number of a snapshot. A reader refuses a newer format.
const snapshotFormat = 1

// snapHead opens a snapshot.
type snapHead struct {
	Format   uint32
	Gen      uint64
	NextID   model.JobID
	NextReq  uint64
	NextSeq  uint64
	Config   *model.Config
	Nodes    uint64
	Blobs    uint64
	Usage    uint64
	Arrays   uint64
	Jobs     uint64
	Requests uint64
	Outbox   uint64
	Instance uint64

	Accounts, Users, Assocs, QOS, QOSUse uint64
	AcctGen                              uint64
	NextAssoc, NextQOS                   uint32
	ResetAt                              model.Time
	Reservations                         uint64
	AcctUse                              uint64
	Mails, NextMail                      uint64
	Answers, NextAnswer                  uint64
	Eras                                 []model.Era
	GivenUp                              uint64
	Shipped                              *snapShipped // nil in snapshots from before records were kept
	Tokens, Certs, Revoked               uint64
	UserTokens                           *snapTokens // nil in snapshots from before
	Capacity                             []model.TRESCount
	Money                                *snapMoney // nil in snapshots from before
	WCKeys                               uint64
	NextWCKey                            uint32
	Turns                                []model.ResvTurn
	NextTurn                             uint64
	Crontabs                             uint64
	Triggers                             uint64
	NextTrigger                          uint32
	Daemons                              *model.Daemons
}

func (x *snapHead) Wire(c *wire.C) {
	wire.Int(c, &x.Format)
	wire.Int(c, &x.Gen)
	wire.Int(c, &x.NextID)
	wire.Int(c, &x.NextReq)
	wire.Int(c, &x.NextSeq)
	wire.Ptr(c, &x.Config)
	wire.Int(c, &x.Nodes)
	wire.Int(c, &x.Blobs)
	wire.Int(c, &x.Usage)
	wire.Int(c, &x.Arrays)
	wire.Int(c, &x.Jobs)
	wire.Int(c, &x.Requests)
	wire.Int(c, &x.Outbox)
	wire.Int(c, &x.Instance)
	wire.Int(c, &x.Accounts)
	wire.Int(c, &x.Users)
	wire.Int(c, &x.Assocs)
	wire.Int(c, &x.QOS)
	wire.Int(c, &x.QOSUse)
	wire.Int(c, &x.AcctGen)
	wire.Int(c, &x.NextAssoc)
	wire.Int(c, &x.NextQOS)
	wire.Int(c, &x.ResetAt)
	wire.Int(c, &x.Reservations)
	wire.Int(c, &x.AcctUse)
	wire.Int(c, &x.Mails)
	wire.Int(c, &x.NextMail)
	wire.Int(c, &x.Answers)
	wire.Int(c, &x.NextAnswer)
	wire.List(c, &x.Eras, model.MaxFew)
	wire.Int(c, &x.GivenUp)
	wire.Ptr(c, &x.Shipped)
	wire.Int(c, &x.Tokens)
	wire.Int(c, &x.Certs)
	wire.Int(c, &x.Revoked)
	wire.Ptr(c, &x.UserTokens)
	wire.List(c, &x.Capacity, model.MaxFew)
	wire.Ptr(c, &x.Money)
	wire.Int(c, &x.WCKeys)
	wire.Int(c, &x.NextWCKey)
	wire.List(c, &x.Turns, model.MaxList)
	wire.Int(c, &x.NextTurn)
	wire.Int(c, &x.Crontabs)
	wire.Int(c, &x.Triggers)
	wire.Int(c, &x.NextTrigger)
	wire.Ptr(c, &x.Daemons)
}

// snapJob is a job whose specification, shared between the tasks of an array, is written once: Spec numbers it.
type snapJob struct {
	Spec uint32
	Job  *model.Job
}

func (x *snapJob) Wire(c *wire.C) {
	wire.Int(c, &x.Spec)
	wire.Ptr(c, &x.Job)
}

type snapRequest struct {
	ID  string
	Job model.JobID
	At  model.Time
	Seq uint64
}

func (x *snapRequest) Wire(c *wire.C) {
	wire.ID(c, &x.ID, model.MaxName)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Seq)
}

type snapEvent struct {
	Seq    uint64
	Latest bool // it is the job's latest event: the next one replaces it
	Same   bool // it is the job's present record
	Job    model.JobID
	Record *snapJob
	Step   *model.Step // the event is the end of this step
	Audit  *model.Audit
}

func (x *snapEvent) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Bool(c, &x.Latest)
	wire.Bool(c, &x.Same)
	wire.Int(c, &x.Job)
	wire.Ptr(c, &x.Record)
	wire.Ptr(c, &x.Step)
	wire.Ptr(c, &x.Audit)
}

type snapMail struct {
	Seq   uint64
	What  model.MailTypes
	At    model.Time
	Job   *snapJob
	Array *Array
}

func (x *snapMail) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.What)
	wire.Int(c, &x.At)
	wire.Ptr(c, &x.Job)
	wire.Ptr(c, &x.Array)
}

// frozen is a View with the facts that only a snapshot needs.
type frozen struct {
	*View
	reqQueue *btree.Map[uint64, string]
	outSeq   *btree.Map[model.JobID, uint64]
	ansOrder *btree.Map[uint64, string]
	open     bool // without what only administrators may see
}

// write writes the facts. Equal facts give equal bytes.
func (v *frozen) write(w io.Writer) error {
	e := wire.NewWriter(w)
	head := snapHead{snapshotFormat, v.gen, v.nextID, v.nextReq, v.nextSeq, v.cfg, uint64(v.nodes.Len()),
		uint64(v.blobs.Len()), uint64(v.usage.Len()), uint64(v.arrays.Len()), uint64(v.jobs.Len()),
		uint64(v.requests.Len()), uint64(v.outbox.Len()), v.instance, uint64(v.accounts.Len()), uint64(v.users.Len()),
		uint64(v.assocs.Len()),
		uint64(v.qos.Len()), uint64(v.qosUse.Len()), v.acctGen, v.nextAssoc, v.nextQOS, v.resetAt, uint64(v.resvs.Len()),
		uint64(v.acctUse.Len()),
		uint64(v.mails.Len()), v.nextMail, uint64(v.ansOrder.Len()), v.answers.next,
		v.eras, uint64(v.givenUp.Len()),
		&snapShipped{v.shipped.acked, v.shipped.gone, v.shipped.discarded, uint64(v.shipped.packs.Len())},
		uint64(v.certs.tokens.Len()), uint64(v.certs.issued.Len()), uint64(v.certs.revoked.Len()),
		v.tokens.snap(v.open), v.capacity,
		&snapMoney{uint64(v.wallets.Len()), uint64(v.invoices.Len()), v.nextInvoice},
		uint64(v.wckeys.Len()), v.nextWCKey, v.turns, v.nextTurn,
		uint64(v.crontabs.Len()), uint64(v.triggers.all.Len()), v.triggers.next, v.triggers.seen}
	err := e.Write(&head)
	put := func(x wire.Coder) bool {
		err = e.Write(x)
		return err == nil
	}
	v.nodes.Scan(func(_ string, n *model.Node) bool { return put(n) })
	v.blobs.Scan(func(_ string, b *model.Blob) bool { return put(b) })
	v.usage.Scan(func(_ string, u *Usage) bool { return put(u) })
	v.arrays.Scan(func(_ model.JobID, a *Array) bool { return put(a) })
	specs := map[*model.Spec]uint32{}
	packed := func(j *model.Job) *snapJob {
		c := *j
		n, seen := specs[j.Spec]
		if !seen {
			n = uint32(len(specs) + 1)
			specs[j.Spec] = n
		} else {
			c.Spec = nil
		}
		return &snapJob{n, &c}
	}
	v.jobs.Scan(func(_ model.JobID, j *model.Job) bool { return put(packed(j)) })
	v.reqQueue.Scan(func(seq uint64, id string) bool {
		r, _ := v.requests.Get(id)
		return put(&snapRequest{id, r.Job, r.At, seq})
	})
	v.outbox.Scan(func(seq uint64, j *model.Job) bool {
		latest, ok := v.outSeq.Get(j.ID)
		ev := snapEvent{Seq: seq, Latest: ok && latest == seq, Job: j.ID}
		ev.Step, _ = v.outSteps.Get(seq)
		if ev.Audit, _ = v.outTrail.Get(seq); ev.Audit != nil {
			return put(&ev)
		}
		if cur, ok := v.jobs.Get(j.ID); ok && cur == j {
			ev.Same = true
		} else {
			ev.Record = packed(j)
		}
		return put(&ev)
	})
	v.accounts.Scan(func(_ string, a *model.Account) bool { return put(a) })
	v.users.Scan(func(_ string, u *model.User) bool { return put(u) })
	v.assocs.Scan(func(_ string, a *model.Association) bool { return put(a) })
	v.qos.Scan(func(_ string, q *model.QOS) bool { return put(q) })
	v.qosUse.Scan(func(_ string, u *Usage) bool { return put(u) })
	v.resvs.Scan(func(_ string, r *model.Reservation) bool { return put(r) })
	v.acctUse.Scan(func(_ string, u *Usage) bool { return put(u) })
	v.mails.Scan(func(seq uint64, m *Mail) bool { return put(&snapMail{seq, m.What, m.At, packed(m.Job), m.Array}) })
	v.ansOrder.Scan(func(seq uint64, key string) bool {
		a := v.Answer(key)
		return put(&snapAnswer{key, a.At, a.Begun, a.Reply, a.Refused, seq})
	})
	v.givenUp.Scan(func(a lastAttempt) bool { return put(packed(a.job)) })
	v.shipped.packs.Scan(func(_ uint64, p *pack) bool { return put(p) })
	v.certs.tokens.Scan(func(_ string, t *model.CertToken) bool { return put(t) })
	v.certs.issued.Scan(func(_ string, c *model.Cert) bool { return put(c) })
	v.certs.revoked.Scan(func(_ string, r *model.CertRevoked) bool { return put(r) })
	v.wallets.Scan(func(_ string, w *price.Wallet) bool { return put(w) })
	v.invoices.Scan(func(_ uint64, x *price.Invoice) bool { return put(x) })
	v.wckeys.Scan(func(_ string, w *model.WCKey) bool { return put(w) })
	v.crontabs.Scan(func(_ uint32, t *model.Crontab) bool { return put(t) })
	v.triggers.all.Scan(func(_ uint32, t *model.Trigger) bool { return put(t) })
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := e.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Freeze gives a function that writes the snapshot of the present facts; it may run while Apply goes on.
func (s *State) Freeze() func(io.Writer) error {
	v := &frozen{s.View(), s.reqQueue.Copy(), s.outSeq.Copy(), s.answers.order.Copy(), false}
	return v.write
}

// FreezeOpen is Freeze without what only administrators may see: the key of users' tokens.
func (s *State) FreezeOpen() func(io.Writer) error {
	v := &frozen{s.View(), s.reqQueue.Copy(), s.outSeq.Copy(), s.answers.order.Copy(), true}
	return v.write
}

// Restore replaces the state with a snapshot. On an error s is unchanged.
func (s *State) Restore(r io.Reader) error {
	in := &restorer{d: wire.NewReader(r), n: New(), specs: map[uint32]*model.Spec{}}
	if err := in.read(); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	*s = *in.n
	return nil
}

// restorer reads a snapshot into a new state.
type restorer struct {
	d     *wire.Reader
	n     *State
	specs map[uint32]*model.Spec // by snapJob.Spec
}

func (in *restorer) read() error {
	var head snapHead
	if err := in.d.Read(&head); err != nil {
		return err
	}
	if err := in.head(&head); err != nil {
		return err
	}
	for _, part := range []struct {
		count uint64
		read  func() error
	}{ // in the order in which write puts them
		{head.Nodes, in.node},
		{head.Blobs, in.blob},
		{head.Usage, in.usage},
		{head.Arrays, in.array},
		{head.Jobs, in.job},
		{head.Requests, in.request},
		{head.Outbox, in.event},
		{head.Accounts, in.account},
		{head.Users, in.user},
		{head.Assocs, in.assoc},
		{head.QOS, in.qos},
		{head.QOSUse, in.qosUse},
		{head.Reservations, in.reservation},
		{head.AcctUse, in.acctUse},
		{head.Mails, in.mail},
		{head.Answers, in.answer},
		{head.GivenUp, in.attempt},
		{head.Shipped.Packs, in.pack},
		{head.Tokens, in.token},
		{head.Certs, in.cert},
		{head.Revoked, in.revoked},
		{head.Money.Wallets, in.wallet},
		{head.Money.Invoices, in.invoice},
		{head.WCKeys, in.wckey},
		{head.Crontabs, in.crontab},
		{head.Triggers, in.trigger},
	} {
		for range part.count {
			if err := part.read(); err != nil {
				return err
			}
		}
	}
	if !in.d.AtEnd() {
		return fmt.Errorf("bytes are left after its end")
	}
	return in.settle()
}

// head takes what opens a snapshot.
func (in *restorer) head(head *snapHead) error {
	if head.Format != snapshotFormat {
		return fmt.Errorf("format %d, this version reads %d: it was written by another version of gbatch",
			head.Format, snapshotFormat)
	}
	n := in.n
	n.gen, n.nextID, n.nextReq, n.nextSeq = head.Gen, head.NextID, head.NextReq, head.NextSeq
	n.instance, n.nextMail, n.answers.next = head.Instance, max(1, head.NextMail), max(1, head.NextAnswer)
	n.eras, n.capacity = head.Eras, head.Capacity
	if k := head.UserTokens; k != nil {
		n.tokens = tokens{k.Key, k.Revoked}
	}
	if k := head.Shipped; k != nil {
		n.shipped.acked, n.shipped.gone, n.shipped.discarded = k.Acked, k.Gone, k.Discarded
	} else {
		head.Shipped = &snapShipped{}
	}
	if head.Money == nil {
		head.Money = &snapMoney{Next: 1}
	}
	n.nextInvoice, n.nextWCKey = max(1, head.Money.Next), max(1, head.NextWCKey)
	n.triggers.next, n.triggers.seen = max(1, head.NextTrigger), head.Daemons
	n.turns, n.nextTurn = head.Turns, max(1, head.NextTurn)
	if head.Accounts > 0 { // a snapshot from before there were accounts keeps the accounts of a new cluster
		n.accounts.Clear()
		n.users.Clear()
		n.assocs.Clear()
		n.qos.Clear()
		n.acctGen, n.nextAssoc, n.nextQOS, n.resetAt = head.AcctGen, head.NextAssoc, head.NextQOS, head.ResetAt
	}
	if err := validConfig(head.Config); err != nil {
		return err
	}
	n.setConfig(head.Config)
	return nil
}

// settle makes the indexes, and checks that the facts agree with each other.
func (in *restorer) settle() error {
	n := in.n
	n.forgetStrays()
	if n.acctUse.Len() == 0 {
		n.sumAccounts(0) // for a snapshot from before these sums were kept
	}
	n.reindex()
	for _, check := range []func() error{n.checkJobs, n.checkNodes, n.checkLogs, n.checkAccounts, n.checkMoney,
		n.checkReservations, n.checkTriggers} {
		if err := check(); err != nil {
			return fmt.Errorf("its facts contradict each other: %w", err)
		}
	}
	return nil
}

// unpack gives a job its specification, which stands with the first job that has it.
func (in *restorer) unpack(sj *snapJob) (*model.Job, error) {
	j := sj.Job
	if j == nil {
		return nil, fmt.Errorf("a job is missing")
	}
	if j.Spec != nil {
		in.n.internSpec(j.Spec)
		in.specs[sj.Spec] = j.Spec
	} else if j.Spec = in.specs[sj.Spec]; j.Spec == nil {
		return nil, fmt.Errorf("job %d refers to specification %d, which is missing", j.ID, sj.Spec)
	}
	return j, validJob(j)
}

func (in *restorer) node() error {
	x := new(model.Node)
	if err := in.d.Read(x); err != nil || x.Def == nil {
		return fmt.Errorf("a node: %w", orMissing(err))
	}
	in.n.nodes.Set(x.Def.Name, x)
	return nil
}

func (in *restorer) blob() error {
	x := new(model.Blob)
	if err := in.d.Read(x); err != nil {
		return err
	}
	if x.Key == "" {
		return fmt.Errorf("content without a key")
	}
	in.n.blobs.Set(x.Key, x)
	return nil
}

func (in *restorer) usage() error {
	x := new(Usage)
	err := in.d.Read(x)
	in.n.usage.Set(usageKey(x.Account, x.User, x.Partition), x)
	return err
}

func (in *restorer) array() error {
	x := new(Array)
	err := in.d.Read(x)
	in.n.arrays.Set(x.ID, x)
	return err
}

func (in *restorer) job() error {
	x := new(snapJob)
	if err := in.d.Read(x); err != nil {
		return err
	}
	j, err := in.unpack(x)
	if err != nil {
		return err
	}
	in.n.jobs.Set(j.ID, j)
	return nil
}

func (in *restorer) request() error {
	var x snapRequest
	if err := in.d.Read(&x); err != nil {
		return err
	}
	in.n.requests.Set(x.ID, request{x.Job, x.At, x.Seq})
	in.n.reqQueue.Set(x.Seq, x.ID)
	return nil
}

// event is an accounting event: of a job as it is now, or of an earlier record that it brings along.
func (in *restorer) event() error {
	var x snapEvent
	if err := in.d.Read(&x); err != nil {
		return err
	}
	n := in.n
	if x.Audit != nil {
		n.outbox.Set(x.Seq, noJob)
		n.outTrail.Set(x.Seq, x.Audit)
		n.detail.trail += trailWeight(x.Audit)
		return nil
	}
	j, ok := n.jobs.Get(x.Job)
	if !x.Same {
		if x.Record == nil {
			return fmt.Errorf("accounting event %d is empty", x.Seq)
		}
		var err error
		if j, err = in.unpack(x.Record); err != nil {
			return err
		}
	} else if !ok {
		return fmt.Errorf("accounting event %d refers to job %d, which is missing", x.Seq, x.Job)
	}
	n.outbox.Set(x.Seq, j)
	if x.Step != nil {
		n.outSteps.Set(x.Seq, x.Step)
		n.detail.steps += stepWeight(x.Step)
	}
	if x.Latest {
		n.outSeq.Set(x.Job, x.Seq)
	}
	return nil
}

func (in *restorer) account() error {
	x := new(model.Account)
	err := in.d.Read(x)
	in.n.accounts.Set(x.Name, x)
	return err
}

func (in *restorer) user() error {
	x := new(model.User)
	err := in.d.Read(x)
	in.n.users.Set(x.Name, x)
	return err
}

func (in *restorer) assoc() error {
	x := new(model.Association)
	err := in.d.Read(x)
	in.n.assocs.Set(keyOf(x), x)
	return err
}

func (in *restorer) qos() error {
	x := new(model.QOS)
	err := in.d.Read(x)
	in.n.qos.Set(x.Name, x)
	return err
}

func (in *restorer) wckey() error {
	x := new(model.WCKey)
	err := in.d.Read(x)
	in.n.wckeys.Set(wckeyKey(x.User, x.Name), x)
	return err
}

func (in *restorer) qosUse() error {
	x := new(Usage)
	err := in.d.Read(x)
	in.n.qosUse.Set(x.QOS, x)
	return err
}

func (in *restorer) reservation() error {
	x := new(model.Reservation)
	if err := in.d.Read(x); err != nil {
		return err
	}
	in.n.resvs.Set(x.Name, x)
	return validReservation(x, true)
}

func (in *restorer) acctUse() error {
	x := new(Usage)
	err := in.d.Read(x)
	in.n.acctUse.Set(x.Account, x)
	return err
}

func (in *restorer) mail() error {
	x := new(snapMail)
	if err := in.d.Read(x); err != nil || x.Job == nil {
		return orMissing(err)
	}
	j, err := in.unpack(x.Job)
	in.n.mails.Set(x.Seq, &Mail{What: x.What, At: x.At, Job: j, Array: x.Array})
	return err
}

// attempt is one whose end may still become known.
func (in *restorer) attempt() error {
	x := new(snapJob)
	if err := in.d.Read(x); err != nil {
		return err
	}
	j, err := in.unpack(x)
	if err != nil {
		return err
	}
	if j.Run == nil || j.End == nil || j.Run.Alloc == nil || len(j.Run.Alloc.Nodes) == 0 {
		return fmt.Errorf("attempt %d of job %d was given up and has not run", j.Attempt, j.ID)
	}
	in.n.givenUp.Set(lastAttempt{attemptKey{j.ID, j.Attempt}, j})
	return nil
}

func orMissing(err error) error {
	if err == nil {
		return fmt.Errorf("a part is missing")
	}
	return err
}
