package dbd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// This file owns bringing records of another batch system to a gdbd that runs. They are a history of their own
// (proto.ImportInstance) of a cluster; a record replaces the one with its job, attempt and step, so bringing them again
// changes nothing.

// Importer brings records to a gdbd. It is used by one goroutine.
type Importer struct {
	mux     *rpc.Mux
	cluster string
	seq     uint64
	batch   []*model.Record
	bytes   int
}

// Bounds of one request.
const (
	importRecords = 4096
	importBytes   = 640 << 10 // well below what a request may have
	recordBytes   = 160       // of a record, apart from its texts
)

// Import connects to the gdbd. It needs a controller's key, since others bring no records.
func (a *Admin) Import(ctx context.Context, cluster string) (*Importer, error) {
	if a.Addr == "" {
		return nil, errors.New("the configuration names no accounting daemon; set AccountingStorageHost in gbatch.conf")
	}
	cfg, err := a.certificate(pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	nc, err := pki.Dial(ctx, a.Addr, pki.ProtoRPC, cfg, pki.RoleDBD)
	if err != nil {
		return nil, fmt.Errorf("gdbd at %s can't be asked: %w", a.Addr, err)
	}
	return newImporter(ctx, nc, a.Addr, cluster)
}

func newImporter(ctx context.Context, nc net.Conn, addr, cluster string) (*Importer, error) {
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "gdbd at " + addr}))
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	i := &Importer{mux: m, cluster: cluster}
	reply, err := i.put(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	i.seq = reply.Seq
	return i, nil
}

// Close ends the connection. What was not flushed is not brought.
func (i *Importer) Close() error { return i.mux.Close() }

// Add brings a record, with others or later. The record is the importer's from then on.
func (i *Importer) Add(ctx context.Context, r *model.Record) error {
	n := recordSize(r)
	if n > importBytes {
		return &BadRequestError{fmt.Sprintf("its texts have %d bytes; at most %d", n, importBytes)}
	}
	if len(i.batch) == importRecords || i.bytes+n > importBytes {
		if err := i.Flush(ctx); err != nil {
			return err
		}
	}
	i.seq++
	r.Seq = i.seq
	i.batch, i.bytes = append(i.batch, r), i.bytes+n
	return nil
}

// Flush brings what Add has taken. When it returns nil, all of it is on gdbd's disk.
func (i *Importer) Flush(ctx context.Context) error {
	if len(i.batch) == 0 {
		return nil
	}
	reply, err := i.put(ctx, i.batch)
	if err == nil && reply.Seq < i.seq {
		err = fmt.Errorf("gdbd has stored records up to %d of %d", reply.Seq, i.seq)
	}
	clear(i.batch)
	i.batch, i.bytes = i.batch[:0], 0
	return err
}

func (i *Importer) put(ctx context.Context, records []*model.Record) (reply proto.PutReply, err error) {
	ctx, stop := context.WithTimeout(ctx, maxSilence)
	defer stop()
	body, err := proto.Encode(&proto.Put{Cluster: i.cluster, Instance: proto.ImportInstance, Records: records})
	if err != nil {
		return reply, err
	}
	err = i.mux.Stream(ctx, proto.KindPut, body, func(f *rpc.Frame) error { return proto.Decode(f.Body, &reply) })
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("gdbd has not answered for %v; its log may say why: %w", maxSilence.Round(time.Second), err)
	}
	return reply, err
}

// recordSize estimates the bytes of a record in a request, from above.
func recordSize(r *model.Record) int {
	n := recordBytes
	for _, s := range []string{r.Cluster, r.TaskText, r.Name, r.User, r.Group, r.Account, r.QOS, r.Partition, r.Nodes,
		r.WorkDir, r.Command, r.SubmitLine, r.Comment, r.AdminComment, r.StdOut, r.StdErr, r.StdIn, r.Constraints, r.Why,
		r.Reservation, r.FailedNode, r.WCKey} {
		n += len(s)
	}
	for _, list := range [][]model.GresCount{r.ReqGres, r.AllocGres} {
		for _, g := range list {
			n += len(g.Name) + len(g.Type) + 16
		}
	}
	if r.Asked != nil {
		for _, list := range [][]model.LicenseCount{r.Asked.Licenses, r.Asked.Held} {
			for _, l := range list {
				n += len(l.Name) + 16
			}
		}
	}
	if s := r.Step; s != nil {
		n += len(s.Name) + len(s.Submit) + recordBytes
		for _, node := range s.Nodes {
			n += len(node) + 8
		}
		for _, g := range s.Gres {
			n += len(g.Name) + len(g.Type) + 16
		}
	}
	return n
}
