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
	"gbatch/internal/wire"
)

// rowgroups.go makes the rows of jobs that have changed, and takes those of others as they were made and compressed the
// last time: in a list of a thousand jobs a submission changes one.
//
// Jobs whose numbers differ in the last bits only are a group, so that one that comes or goes moves no other. What is
// kept is found by what it was made of: the jobs' encodings and what else their rows have in them. So nothing can be
// outdated, and what no list needs any more is forgotten.

const (
	groupBits = 5        // 32 jobs: some 160 kB of JSON, 6 kB compressed
	mostKept  = 32 << 20 // bytes of all rows that are kept, and of all jobs
	memoryOf  = 8        // a job takes about so many times the bytes of its encoding
)

// rowsKey names rows by two sums over all that they are made of, with random seeds.
type rowsKey [2]uint64

// madeRows are the rows of a group, with the comma before them.
type madeRows struct {
	b   []byte
	sum uint32 // of the plain bytes; if they are compressed
	n   int64  // the number of plain bytes
}

// rowsKept are the rows that lists had lately, and the jobs of which they were made.
type rowsKept struct {
	rows  recently[*madeRows]
	jobs  recently[[]*model.Job]
	seeds [2]maphash.Seed
}

func newRowsKept() *rowsKept {
	return &rowsKept{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

func (k *rowsKept) key(of []byte) rowsKey {
	return rowsKey{maphash.Bytes(k.seeds[0], of), maphash.Bytes(k.seeds[1], of)}
}

// recently keeps what lists needed lately. When the recent ones fill half of the room, those that no list has needed
// since it was empty go.
type recently[V any] struct {
	mu             sync.Mutex
	recent, before map[rowsKey]sized[V]
	bytes          int // of recent
}

type sized[V any] struct {
	v     V
	bytes int
}

func (k *recently[V]) get(key rowsKey) (v V, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.recent[key]
	if ok {
		return r.v, true
	}
	if r, ok = k.before[key]; ok {
		k.add(key, r)
	}
	return r.v, ok
}

// put keeps a value of about so many bytes.
func (k *recently[V]) put(key rowsKey, v V, bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(key, sized[V]{v, bytes})
}

// add is called with the lock held.
func (k *recently[V]) add(key rowsKey, r sized[V]) {
	const overhead = 128 // of an entry, about
	if k.bytes += r.bytes + overhead; k.recent == nil || k.bytes > mostKept/2 {
		k.recent, k.before, k.bytes = map[rowsKey]sized[V]{}, k.recent, r.bytes+overhead
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

	last  model.JobID
	raw   []byte     // the group's jobs, one after the other
	each  []wire.Raw // each of them, in raw
	later bool       // there was a group before
	n     int        // rows made
	out   bytes.Buffer
}

// part notes what of an answer's part counts for all rows.
func (g *rowGroups) part(chunk *proto.RawJobs) error {
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
func (g *rowGroups) add(job wire.Raw) error {
	id, err := wire.FirstInt[model.JobID](job)
	if err == nil && len(g.each) > 0 && g.last>>groupBits != id>>groupBits {
		err = g.end()
	}
	at := len(g.raw)
	g.raw = append(g.raw, job...)
	g.each, g.last = append(g.each, g.raw[at:]), id
	return err
}

// read gives the group's jobs, which a list had before more often than not, and their key.
func (g *rowGroups) read() (jobs []*model.Job, key rowsKey, err error) {
	kept := g.q.s.rows
	key = kept.key(g.raw)
	jobs, ok := kept.jobs.get(key)
	if ok {
		return jobs, key, nil
	}
	for _, b := range g.each {
		job := new(model.Job)
		if err := wire.Unmarshal(b, job); err != nil {
			return nil, key, err
		}
		jobs = append(jobs, job)
	}
	kept.jobs.put(key, jobs, memoryOf*len(g.raw))
	return jobs, key, nil
}

// end writes the group.
func (g *rowGroups) end() error {
	if len(g.each) == 0 {
		return nil
	}
	jobs, key, err := g.read()
	if err != nil {
		return err
	}
	of := g.raw[:0]
	for _, sum := range key {
		of = binary.BigEndian.AppendUint64(of, sum)
	}
	for _, job := range jobs {
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
	key = kept.key(of)
	r, ok := kept.rows.get(key)
	if !ok {
		r = g.write(jobs)
		kept.rows.put(key, r, len(r.b))
	}
	g.j.Flush(true)
	if g.j.Err == nil {
		g.j.Err = g.q.rowSink.take(r)
	}
	g.j.Continue()
	g.raw, g.each, g.later = of[:0], g.each[:0], true
	return g.j.Err
}

// write makes the group's rows.
func (g *rowGroups) write(jobs []*model.Job) *madeRows {
	g.out.Reset()
	j := slurmjson.New(&g.out, g.q.ver)
	if j.Started(); g.later {
		j.Continue()
	}
	for _, job := range jobs {
		g.rows.Each(job, func(r *jobtext.JobRow) {
			slurmjson.Write(j, "", jobFields, r)
			g.q.wrote(g.n)
			g.n++
		})
	}
	j.Flush(true)
	return g.q.rowSink.keep(g.out.Bytes())
}
