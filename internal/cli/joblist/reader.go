package joblist

import (
	"reflect"

	"gbatch/internal/model"
)

// Reader reads chunks of a list. It is for one goroutine; the zero value is ready.
type Reader struct {
	tables *tables
	job    model.Job
	spec   model.Spec
	run    model.Run
	end    model.End
	alloc  model.Alloc
}

// Each calls f for every job of an encoded proto.JobsChunk, in order, with the moment at which the controller answered.
// The job is good until f returns: Clone gives one to keep. Spec.Script, Env, Groups, Args, Limits and Job.Claim are not read.
func (r *Reader) Each(body []byte, f func(now model.Time, j *model.Job) error) error {
	if r.tables == nil {
		r.tables = newTables(r)
	}
	d := dec{s: string(body)}
	fields := d.array()
	var now model.Time
	for i := range fields {
		switch i {
		case 0:
			now = model.Time(d.int())
		case 1:
			for range d.array() {
				n := d.array()
				if n >= 0 {
					r.readJob(&d, n)
				}
				if d.err != nil {
					return d.err
				}
				if n < 0 {
					continue
				}
				if err := f(now, &r.job); err != nil {
					return err
				}
			}
		default:
			d.skip(1)
		}
		if d.err != nil {
			return d.err
		}
	}
	return d.err
}

func (r *Reader) readJob(d *dec, n int) {
	r.job = model.Job{Spec: &r.spec, Tasks: r.job.Tasks[:0], Deps: r.job.Deps[:0]}
	r.spec = model.Spec{Partitions: r.spec.Partitions[:0], Gres: r.spec.Gres[:0], ReqNodes: r.spec.ReqNodes[:0],
		ExcNodes: r.spec.ExcNodes[:0], Deps: r.spec.Deps[:0], Tasklist: r.spec.Tasklist[:0]}
	read(d, n, r.tables.job, &r.job)
}

// setter reads one field of a T.
type setter[T any] func(d *dec, x *T)

// inOrder puts setters at the places of their fields in T, so that the declaration of T says where a field is on the
// wire. A field without one is skipped.
func inOrder[T any](by map[string]setter[T]) []setter[T] {
	t := reflect.TypeFor[T]()
	out := make([]setter[T], t.NumField())
	for i := range out {
		out[i] = by[t.Field(i).Name]
	}
	return out
}

// read reads a struct of n fields into x.
func read[T any](d *dec, n int, set []setter[T], x *T) {
	for i := range n {
		if i < len(set) && set[i] != nil {
			set[i](d, x)
		} else {
			d.skip(1)
		}
		if d.err != nil {
			return
		}
	}
}

// list reads an array of structs behind out.
func list[T any](d *dec, set []setter[T], out []T) []T {
	for range d.array() {
		if d.err != nil {
			break
		}
		var zero T
		out = append(out, zero)
		read(d, d.array(), set, &out[len(out)-1])
	}
	return out
}

func readStrings(d *dec, out []string) []string {
	for range d.array() {
		if d.err != nil {
			break
		}
		out = append(out, d.str())
	}
	return out
}

func readBits(d *dec, out model.Bits) model.Bits {
	for range d.array() {
		if d.err != nil {
			break
		}
		out = append(out, uint64(d.int()))
	}
	return out
}

// tasks reads a task set. Nobody else checks what a controller of another make may send.
func tasks(d *dec, set []setter[model.Range], out model.TaskSet) model.TaskSet {
	out = list(d, set, out)
	if !out.Valid() {
		d.fail(errKind)
		return nil
	}
	return out
}
