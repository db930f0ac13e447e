package dbd

import (
	"bufio"
	"context"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
	"gbatch/internal/version"
)

// This file owns gdbd's answers to administrators (admin.go asks). Their certificate is a controller's or an accounting
// daemon's: who has its key may read everything anyway.

// backupPiece is the size of one part of a backup on its way, bytes.
const backupPiece = 1 << 20

// backup sends a backup, one at a time.
func (d *Daemon) backup(ctx context.Context, r *server.Request) error {
	select {
	case d.saving <- struct{}{}:
		defer func() { <-d.saving }()
	default:
		return badRequest("another backup is being made; wait for its end")
	}
	d.opts.Logger.Info("a backup is being made", "for", r.Peer.String())
	out := &pieces{r: r}
	w := bufio.NewWriterSize(out, backupPiece)
	err := d.db.save(ctx, d.opts.Cluster, &headFirst{w: w})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = r.Reply(nil)
	}
	if err != nil {
		d.opts.Logger.Warn("a backup was not completed", "for", r.Peer.String(), "bytes", out.sent, "err", err)
		return err
	}
	d.opts.Logger.Info("a backup was made", "for", r.Peer.String(), "bytes", out.sent)
	return nil
}

// pieces sends what is written to it as parts of an answer.
type pieces struct {
	r    *server.Request
	sent int64
}

func (p *pieces) Write(b []byte) (int, error) {
	if err := p.r.ReplyMore(b); err != nil {
		return 0, err
	}
	p.sent += int64(len(b))
	return len(b), nil
}

// headFirst passes the first write on at once: the head, by which the other side knows the size.
type headFirst struct {
	w     *bufio.Writer
	begun bool
}

func (h *headFirst) Write(b []byte) (int, error) {
	n, err := h.w.Write(b)
	if err == nil && !h.begun {
		h.begun = true
		err = h.w.Flush()
	}
	return n, err
}

// beginEmpty allows the database to begin empty.
func (d *Daemon) beginEmpty(ctx context.Context, r *server.Request) error {
	empty := true
	if err := d.db.view(func(tx *bolt.Tx) error {
		empty = len(seriesIn(tx)) == 0
		return nil
	}); err != nil {
		return err
	}
	if !empty && d.db.lost() == nil && d.db.lag.Load() == nil {
		return badRequest("there is no need to: the accounting database %s is not empty under a cluster that is not new",
			d.db.path)
	}
	if err := d.db.alter(ctx, func(tx *bolt.Tx) error { return allowEmpty(tx, d.db.now()) }); err != nil {
		return err
	}
	d.opts.Logger.Warn("the accounting database may begin empty", "file", d.db.path, "by", r.Peer.String())
	return r.Reply(nil)
}

// state says what the database has.
func (d *Daemon) state(r *server.Request) error {
	reply := proto.DbdReply{Name: d.opts.Name, Version: version.Version, Now: model.Time(d.db.now().UnixMilli()),
		File: d.db.path}
	err := d.db.view(func(tx *bolt.Tx) error {
		reply.Bytes = tx.Size()
		for _, s := range seriesIn(tx) {
			if len(reply.Series) == model.MaxList {
				break
			}
			reply.Series = append(reply.Series, proto.DbdSeries(s))
		}
		clusters, err := seriesNumbers(tx)
		reply.Notes = notes(tx, clusters)
		reply.Holes = holesIn(tx)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.db.lost(); err != nil {
		reply.Notes = append(reply.Notes, err.Error())
	}
	if behind := d.db.lag.Load(); behind != nil {
		reply.Notes = append(reply.Notes, behind.Error())
	}
	body, err := proto.Encode(&reply)
	if err != nil {
		return err
	}
	return r.Reply(body)
}
