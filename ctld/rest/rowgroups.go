package rest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"hash/maphash"
	"sync"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// rowgroups.go makes the rows of jobs that have changed, and takes those of others as they were made and compressed the
// last time: in a list of a thousand jobs a submission changes one.
//
// Jobs whose numbers differ in the last bits only are a group, so that one that comes or goes moves no other. What is
// kept is found by what it was made of: the jobs' encodings and what else their rows have in them. So nothing can be
// outdated, and what no list needs any more is forgotten.

const (
	groupBits = 5        // 32 jobs: some 160 kB of JSON, 6 kB compressed
	mostKept  = 32 << 20 // bytes of all rows that are kept
)

// rowsKey names rows by two sums over all that they are made of, with random seeds.
type rowsKey [2]uint64

// madeRows are the rows of a group, with the comma before them.
type madeRows struct {
	b   []byte
	sum uint32 // of the plain bytes; if they are compressed
	n   int64  // the number of plain bytes
}

// rowsKept are the rows that lists had lately. When the recent ones fill half of the room, those that no list has
// needed since it was empty go.
type rowsKept struct {
	mu             sync.Mutex
	recent, before map[rowsKey]*madeRows
	bytes          int // of recent
	seeds          [2]maphash.Seed
}

func newRowsKept() *rowsKept {
	return &rowsKept{recent: map[rowsKey]*madeRows{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

func (k *rowsKept) key(of []byte) rowsKey {
	return rowsKey{maphash.Bytes(k.seeds[0], of), maphash.Bytes(k.seeds[1], of)}
}

func (k *rowsKept) get(key rowsKey) *madeRows {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.recent[key]; r != nil {
		return r
	}
	r := k.before[key]
	if r != nil {
		k.add(key, r)
	}
	return r
}

func (k *rowsKept) put(key rowsKey, r *madeRows) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(key, r)
}

// add is called with the lock held.
func (k *rowsKept) add(key rowsKey, r *madeRows) {
	const overhead = 128 // of an entry, about
	if k.bytes += len(r.b) + overhead; k.bytes > mostKept/2 {
		k.recent, k.before, k.bytes = map[rowsKey]*madeRows{}, k.recent, len(r.b)+overhead
	}
	k.recent[key] = r
}

// rowSink takes rows that are made, and gives rows the form in which they are kept.
type rowSink interface {
	keep(plain []byte) *madeRows
	take(r *madeRows) error
}

func (p putter) keep(plain []byte) *madeRows {
	return &madeRows{b: bytes.Clone(plain), n: int64(len(plain))}
}

func (p putter) take(r *madeRows) error { return p(r.b) } // nobody changes them

// keep compresses rows by themselves.
func (z *zipper) keep(plain []byte) *madeRows {
	z.w.Reset(&z.out)
	z.apart = true
	_, _ = z.w.Write(plain) // a buffer takes everything
	_ = z.w.Flush()         // as above
	r := &madeRows{b: bytes.Clone(z.out.Bytes()), sum: crc32.ChecksumIEEE(plain), n: int64(len(plain))}
	z.out.Reset()
	return r
}

func (z *zipper) take(r *madeRows) error {
	z.sum, z.n, z.apart = joinSums(z.sum, r.sum, r.n), z.n+r.n, true
	return z.put(r.b)
}

// rowGroups writes the rows of jobs, which come in order of their numbers, group by group.
type rowGroups struct {
	q     *request
	j     *slurmjson.Writer // of the list
	rows  *jobtext.JobRows
	rules []byte // the partitions' rules, as they are encoded

	jobs  []*model.Job // of the group
	later bool         // there was a group before
	n     int          // rows made
	out   bytes.Buffer
}

// part notes what of an answer's part counts for all rows.
func (g *rowGroups) part(chunk *proto.JobsChunk) error {
	g.rows.View.At = chunk.Now
	if len(chunk.Rules) == 0 {
		return nil
	}
	g.rows.View.Rules.Add(chunk.Rules)
	b, err := proto.Encode(&proto.JobsChunk{Rules: chunk.Rules})
	g.rules = append(g.rules, b...)
	return err
}

// add takes the next job.
func (g *rowGroups) add(job *model.Job) error {
	var err error
	if n := len(g.jobs); n > 0 && g.jobs[n-1].ID>>groupBits != job.ID>>groupBits {
		err = g.end()
	}
	g.jobs = append(g.jobs, job)
	return err
}

// end writes the group.
func (g *rowGroups) end() error {
	if len(g.jobs) == 0 {
		return nil
	}
	of, err := proto.Encode(&proto.JobsChunk{Jobs: g.jobs})
	if err != nil {
		return err
	}
	for _, job := range g.jobs {
		g.rows.Each(job, func(r *jobtext.JobRow) {
			at := len(of)
			of = r.AppendMoment(of)
			of = binary.AppendUvarint(of, uint64(len(of)-at))
		})
	}
	form := byte(0)
	if _, zipped := g.q.rowSink.(*zipper); zipped {
		form |= 1
	}
	if g.later {
		form |= 2
	}
	of = append(append(append(of, g.rules...), g.q.ver+g.rows.View.Cluster...), form)
	kept := g.q.s.rows
	key := kept.key(of)
	r := kept.get(key)
	if r == nil {
		r = g.write()
		kept.put(key, r)
	}
	g.j.Flush(true)
	if g.j.Err == nil {
		g.j.Err = g.q.rowSink.take(r)
	}
	g.j.Continue()
	g.jobs, g.later = g.jobs[:0], true
	return g.j.Err
}

// write makes the group's rows.
func (g *rowGroups) write() *madeRows {
	g.out.Reset()
	j := slurmjson.New(&g.out, g.q.ver)
	if j.Started(); g.later {
		j.Continue()
	}
	for _, job := range g.jobs {
		g.rows.Each(job, func(r *jobtext.JobRow) {
			slurmjson.Write(j, "", jobFields, r)
			g.q.wrote(g.n)
			g.n++
		})
	}
	j.Flush(true)
	return g.q.rowSink.keep(g.out.Bytes())
}
