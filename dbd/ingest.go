package dbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// This file owns all writing. One goroutine writes (run); put gives it a batch of records and waits until they are on
// disk. All batches that have arrived when a commit begins share that commit, and no commit waits for more: under load
// the commits grow by themselves.
//
// Each series keeps the sequence number of its last record, written in the same transaction as the record. So a batch
// that is repeated, in whole or in part or after a crash, changes nothing the second time. A failed transaction
// acknowledges nothing.

const (
	// maxWaitingPuts bounds the batches between connections and the writer; further ones wait on their connections.
	maxWaitingPuts = 64
	// maxTxRecords is the number of records from which a transaction takes no further batch.
	maxTxRecords = 4096
	// maxPutRecords bounds one batch.
	maxPutRecords = 16384
	// maxClusterName bounds a cluster's name, bytes.
	maxClusterName = 256
)

// pending is a batch that waits to be written.
type pending struct {
	series  string // cluster and instance, as the key of the series bucket
	cluster string
	eras    []model.Era
	records []entry
	done    chan putResult

	acked, dropped uint64 // see proto.Put
	imported       bool   // no controller sends them

	alter func(tx *bolt.Tx) error // instead of records: another change of the database
}

type putResult struct {
	seq uint64
	err error
}

// put stores a batch and gives the sequence number up to which all records of its instance are on disk. After an error
// nothing is acknowledged, and the caller sends the batch again.
func (d *db) put(ctx context.Context, p *proto.Put) (uint64, error) {
	b, err := newPending(p)
	if err != nil {
		return 0, err
	}
	return d.hand(ctx, b)
}

// alter makes another change than storing records, in the order of the batches.
func (d *db) alter(ctx context.Context, f func(tx *bolt.Tx) error) error {
	_, err := d.hand(ctx, &pending{alter: f, done: make(chan putResult, 1)})
	return err
}

// hand gives a batch to the writer and waits until it is written.
func (d *db) hand(ctx context.Context, b *pending) (uint64, error) {
	select {
	case d.puts <- b:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case res := <-b.done:
		return res.seq, res.err
	case <-ctx.Done(): // it may still be written; a repetition changes nothing
		return 0, ctx.Err()
	}
}

// BadRequestError is the error for an invalid request: repeating it does not help.
type BadRequestError struct{ Text string }

func (e *BadRequestError) Error() string { return e.Text }

func badRequest(format string, a ...any) error { return &BadRequestError{fmt.Sprintf(format, a...)} }

func newPending(p *proto.Put) (*pending, error) {
	switch {
	case p.Cluster == "":
		return nil, badRequest("accounting records without a cluster's name; set ClusterName in gbatch.conf")
	case len(p.Cluster) > maxClusterName || bytes.IndexByte([]byte(p.Cluster), 0) >= 0:
		return nil, badRequest("the cluster's name is longer than %d bytes or has a zero byte in it", maxClusterName)
	case len(p.Records) > maxPutRecords:
		return nil, badRequest("%d accounting records at once; at most %d", len(p.Records), maxPutRecords)
	}
	b := &pending{
		series:   seriesKey(p),
		imported: p.Instance == proto.ImportInstance,
		cluster:  p.Cluster,
		acked:    p.Acked,
		dropped:  min(p.Dropped, p.Acked),
		eras:     p.Eras,
		records:  make([]entry, 0, len(p.Records)),
		done:     make(chan putResult, 1), // so the writer never waits for a caller that is gone
	}
	last := uint64(0)
	for i, r := range p.Records {
		switch {
		case r == nil:
			return nil, badRequest("accounting record %d of %d is empty", i+1, len(p.Records))
		case r.Seq <= last:
			return nil, badRequest("accounting record %d of %d has the sequence %d after %d; they must grow",
				i+1, len(p.Records), r.Seq, last)
		}
		last = r.Seq
		e := entry{seq: r.Seq, ref: refOf(r), purge: r.Purge, step: r.Step,
			rec: r, audit: r.Audit}
		if r.Audit != nil {
			b.records = append(b.records, e)
			continue
		}
		if !r.Purge {
			if r.Cluster == "" {
				r.Cluster = p.Cluster
			}
			if err := e.encode(); err != nil {
				return nil, err
			}
		}
		b.records = append(b.records, e)
	}
	return b, nil
}

// seriesKey gives the key of a series in its bucket.
func seriesKey(p *proto.Put) string {
	return string(binary.BigEndian.AppendUint64(append([]byte(p.Cluster), 0), p.Instance))
}

// position answers a Put without records: how far its instance is on record.
func (d *db) position(ctx context.Context, p *proto.Put) (reply proto.PutReply, err error) {
	if reply.Seq, err = d.put(ctx, p); err != nil {
		return reply, err
	}
	err = d.view(func(tx *bolt.Tx) error {
		clusters, err := seriesNumbers(tx)
		if err != nil {
			return err
		}
		reply.Notes = notes(tx, clusters)
		s, ok := knownSeries(tx.Bucket(keySeries), seriesKey(p))
		if !ok {
			return nil
		}
		for _, shelf := range openShelves(tx).all {
			if shelf.rec != nil {
				reply.LastJob = max(reply.LastJob, jobSpan(shelf.rec, s.number)[1])
			}
		}
		return nil
	})
	return reply, err
}

// run is the writer. It ends with ctx, after writing the waiting batches, or with an error if the file can no longer be
// trusted.
func (d *db) run(ctx context.Context) error {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	w := &writer{db: d}
	if err := w.purge(); err != nil {
		return err
	}
	roll := time.NewTicker(rollPace)
	defer roll.Stop()
	for {
		var err error
		select {
		case b := <-d.puts:
			err = w.commit(d.gather(b))
		case <-tick.C:
			err = w.purge()
		case <-roll.C:
			var done bool
			if done, err = w.rollSome(); done {
				roll.Stop()
			}
		case <-ctx.Done():
			for err == nil {
				select {
				case b := <-d.puts:
					err = w.commit(d.gather(b))
				default:
					return nil
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

// writer is the state of the writing goroutine.
type writer struct {
	*db
	full bool // the disk was full at the last write
}

// gather takes first and all other batches that have arrived.
func (d *db) gather(first *pending) []*pending {
	group, n := []*pending{first}, len(first.records)
	for n < maxTxRecords {
		select {
		case b := <-d.puts:
			group, n = append(group, b), n+len(b.records)
		default:
			return group
		}
	}
	return group
}

// commit writes a group of batches and answers them.
func (w *writer) commit(group []*pending) error {
	results := make([]putResult, len(group))
	err := w.change(func() error { return w.write(group, results) })
	for i, b := range group {
		if err != nil {
			b.done <- putResult{err: firstLine(err)}
			continue
		}
		b.done <- results[i]
	}
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

// errFull is a write that failed because the disk was full, and left the database unchanged.
var errFull = errors.New("no space left for the accounting database")

// change runs f, which commits one transaction or none. If the disk is full the error is errFull, and the next try may
// succeed; the log says so once, and again when there is room. After any other failure the content of the file is
// unknown until it is opened again, so the daemon must end.
func (w *writer) change(f func() error) error {
	before := w.txid()
	err := guard(f)
	switch {
	case err == nil:
		if w.full && w.txid() != before { // a batch that has nothing new writes nothing
			w.full = false
			w.log.Info("the accounting database can be written again", "file", w.path)
		}
		return nil
	case isFull(err) && w.txid() == before: // otherwise the new state is visible but may not be on disk
		if !w.full {
			w.full = true
			w.log.Error("no space left for the accounting database; records wait in the controller until there is some",
				"file", w.path, "err", err)
		}
		return fmt.Errorf("%w: %w", errFull, err)
	}
	return fmt.Errorf("writing the accounting database %s failed, look after the disk and start gdbd again (what was"+
		" acknowledged is on disk, the controller keeps the rest): %w", w.path, err)
}

// isFull recognizes a full disk, quota or file size limit. bbolt keeps only the text of the error from growing the
// file.
func isFull(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}

// txid gives the number of the last commit that readers see.
func (d *db) txid() (id int) {
	_ = d.view(func(tx *bolt.Tx) error { id = tx.ID(); return nil }) // view logs errors; 0 differs from every number
	return id
}

// firstLine removes stack traces from an error for answers.
func firstLine(err error) error {
	if text, _, cut := bytes.Cut([]byte(err.Error()), []byte("\n")); cut {
		return errors.New(string(text))
	}
	return err
}

// write applies a group in one transaction and fills in the acknowledged sequences. A batch that is refused changes
// nothing.
func (d *db) write(group []*pending, results []putResult) error {
	tx, err := d.bolt.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it only returns ErrTxClosed
	known := tx.Bucket(keySeries)
	last := map[string]series{}
	latest, steps := map[ref]*entry{}, map[stepRef]*entry{}
	restored := map[uint16]model.Time{} // when a series' controllers went on from a snapshot last
	var noted []*entry
	dirty := false
	for i, b := range group {
		if b.alter != nil {
			if err := b.alter(tx); err != nil {
				return err
			}
			dirty = true
			continue
		}
		s, ok := last[b.series]
		if !ok {
			if s, ok, err = openSeries(known, b.series); err != nil {
				return err
			}
		}
		refusal, changed, err := d.admit(tx, b, s, ok)
		if err != nil {
			return err
		}
		if refusal != nil {
			results[i].err = refusal
			continue
		}
		if !b.imported { // its controllers' records are here, and go on
			d.isLost.Store(nil)
			d.lag.Store(nil)
			if d.want != nil {
				d.want(nil)
			}
			d.heard.Store(true)
		}
		dirty = dirty || changed
		ended, refusal, err := enterEras(tx, &s, b.eras, latest, restored)
		if err != nil {
			return err
		}
		if dirty = dirty || ended; refusal != nil {
			results[i].err = refusal
			continue
		}
		for k := range b.records {
			e := &b.records[k]
			if e.seq <= s.seq {
				continue
			}
			s.seq, dirty = e.seq, true
			e.ref.series = s.number
			if e.audit != nil {
				if err := keepAudit(tx, b.cluster, e); err != nil {
					return err
				}
				if e.audit.Noted != nil {
					e.cluster = b.cluster
					noted = append(noted, e)
				}
				continue
			}
			if e.step != nil {
				steps[stepRef{e.ref, e.step.ID}] = e
				continue
			}
			latest[e.ref] = e
		}
		last[b.series] = s
		results[i].seq = s.seq
	}
	if !dirty {
		return nil // all records are already stored
	}
	if err := endOvertaken(tx, latest, restored); err != nil {
		return err
	}
	if err := applyNotes(tx, latest, noted); err != nil {
		return err
	}
	if err := applyEntries(tx, latest); err != nil {
		return err
	}
	if err := applySteps(tx, steps); err != nil {
		return err
	}
	for name, s := range last {
		if err := known.Put([]byte(name), s.append(nil)); err != nil {
			return err
		}
	}
	return tx.Commit()
}
