package ctld

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/snapfile"
	"gbatch/internal/state"
)

// dump sends an operator the whole present state. Submissions and planning go on meanwhile, because it writes frozen
// facts.
func (c *Controller) dump(ctx context.Context, who *caller, rq *proto.DumpRequest, send stream) error {
	c.log.Info("the state was dumped", "uid", who.UID)
	w := bufio.NewWriterSize(chunks{ctx, send}, proto.DumpChunkBytes)
	v, write := c.machine.freeze(c.level(who) < model.AdminFull)
	var err error
	switch rq.What {
	case proto.DumpForSim:
		err = state.WriteDump(w, c.now(), write)
	case proto.DumpSnapshot:
		var f *snapfile.Writer
		if f, err = snapfile.NewWriter(w, c.header(v)); err == nil {
			err = errors.Join(write(f), f.Close())
		}
	case proto.DumpJSON:
		err = writeJSON(w, c.header(v), v)
	default:
		return refuse(proto.CodeBadRequest, "a dump of kind %d is unknown to this version", rq.What)
	}
	return errors.Join(err, w.Flush())
}

// header describes the present facts for a file.
func (c *Controller) header(v *state.View) snapfile.Header {
	k := v.Shipped()
	h := snapfile.Header{Version: c.opts.Version, Cluster: v.Config().Cluster, Instance: v.Instance(),
		Controller: c.opts.Name, SavedMS: int64(c.now()), Index: c.store.Stats().Applied, Epoch: c.store.Term(),
		NextJob: uint32(v.NextJob()), NextRecord: v.NextRecord(), Nodes: len(v.Config().Nodes), Jobs: v.JobCount(),
		Pending: v.Pending(), Running: v.Active(), Waiting: v.OutboxLen(), Kept: k.Kept}
	v.Accounts(func(*model.Account) bool { h.Accounts++; return true })
	v.Users(func(*model.User) bool { h.Users++; return true })
	v.Reservations(func(*model.Reservation) bool { h.Reservations++; return true })
	return h
}

// writeJSON writes the facts for people: an object, whose lists are written entry by entry. Members have the names of
// the fields in this program, times are in Unix milliseconds. Scripts and environments are only named.
func writeJSON(w io.Writer, h snapfile.Header, v *state.View) error {
	j := &jsonWriter{w: w}
	j.text("{")
	j.member("Snapshot", h)
	j.member("Config", v.Config())
	j.member("Eras", v.Eras())
	j.member("Shipped", v.Shipped())
	list := func(name string, scan func(add func(any) bool)) {
		j.list(name)
		scan(j.entry)
		j.text("]")
	}
	list("Nodes", func(add func(any) bool) { v.Nodes(func(n *model.Node) bool { return add(n) }) })
	list("Jobs", func(add func(any) bool) {
		v.Jobs(func(x *model.Job) bool { return add(jsonJob{x, x.State.String(), x.Reason.String()}) })
	})
	list("Accounts", func(add func(any) bool) { v.Accounts(func(x *model.Account) bool { return add(x) }) })
	list("Users", func(add func(any) bool) { v.Users(func(x *model.User) bool { return add(x) }) })
	list("Associations", func(add func(any) bool) { v.Associations(func(x *model.Association) bool { return add(x) }) })
	list("QOS", func(add func(any) bool) { v.AllQOS(func(x *model.QOS) bool { return add(x) }) })
	list("Usage", func(add func(any) bool) { v.Usages(func(x *state.Usage) bool { return add(x) }) })
	list("Reservations", func(add func(any) bool) { v.Reservations(func(x *model.Reservation) bool { return add(x) }) })
	list("Outbox", func(add func(any) bool) {
		v.Outbox(0, func(x state.Event) bool {
			if x.Audit != nil {
				return add(map[string]any{"Seq": x.Seq, "Audit": x.Audit})
			}
			e := map[string]any{"Seq": x.Seq, "Job": x.Job.ID, "Attempt": x.Job.Attempt, "State": x.Job.State.String()}
			if x.Step != nil {
				e["Step"] = x.Step
			}
			return add(e)
		})
	})
	j.text("\n}\n")
	return j.err
}

// jsonJob is a job whose state and reason are words.
type jsonJob struct {
	*model.Job
	State, Reason string
}

// jsonWriter writes an object member by member.
type jsonWriter struct {
	w     io.Writer
	begun bool // the present object has members, or the present list entries
	err   error
}

func (j *jsonWriter) text(s string) {
	if j.err == nil {
		_, j.err = io.WriteString(j.w, s)
	}
	j.begun = s == "]"
}

func (j *jsonWriter) value(x any) {
	b, err := json.Marshal(x)
	if err == nil && j.err == nil {
		_, err = j.w.Write(b)
	}
	j.err = cmp.Or(j.err, err)
	j.begun = true
}

func (j *jsonWriter) name(s, then string) {
	between := "\n"
	if j.begun {
		between = ",\n"
	}
	j.text(between + strconv.Quote(s) + ":" + then)
}

func (j *jsonWriter) member(name string, x any) {
	j.name(name, "")
	j.value(x)
}

func (j *jsonWriter) list(name string) { j.name(name, "[") }

// entry adds one to a list. False: it could not be written.
func (j *jsonWriter) entry(x any) bool {
	if j.begun {
		j.text(",\n")
	} else {
		j.text("\n")
	}
	j.value(x)
	return j.err == nil
}

// chunks is a writer that sends everything that is written to it.
type chunks struct {
	ctx  context.Context
	send stream
}

// Write sends p in one chunk, or in several if it is too large.
func (c chunks) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := c.ctx.Err(); err != nil {
			return n, err
		}
		part := p[n:min(len(p), n+proto.DumpChunkBytes)]
		if err := c.send(&proto.DumpChunk{Data: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}
