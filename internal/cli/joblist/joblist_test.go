package joblist

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestSameAsCodec: what is read in the short way is what the codec reads.
func TestSameAsCodec(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	var r Reader
	for round := range 40 {
		in := proto.JobsChunk{Now: model.Time(round)}
		for range rng.IntN(20) {
			j := new(model.Job)
			fill(rng, reflect.ValueOf(j).Elem(), 0)
			j.Tasks, j.Spec.Tasklist = someTasks(rng), someTasks(rng)
			in.Jobs = append(in.Jobs, j)
		}
		body, err := proto.Encode(&in)
		if err != nil {
			t.Fatal(err)
		}
		var want proto.JobsChunk
		if err := proto.Decode(body, &want); err != nil {
			t.Fatal(err)
		}
		var got []*model.Job
		err = r.Each(body, func(now model.Time, j *model.Job) error {
			if now != in.Now {
				t.Errorf("now %d, want %d", now, in.Now)
			}
			got = append(got, clone(j))
			return nil
		})
		if err != nil || len(got) != len(want.Jobs) {
			t.Fatalf("round %d: %d jobs, %v; want %d", round, len(got), err, len(want.Jobs))
		}
		for i, j := range want.Jobs {
			s := j.Spec
			j.Claim = nil
			s.Script, s.Env, s.Groups, s.Args, s.Limits = "", "", nil, nil, nil
			if !reflect.DeepEqual(plain(got[i]), plain(j)) {
				t.Errorf("round %d, job %d:\n got %+v %+v\nwant %+v %+v", round, i, got[i], got[i].Spec, j, s)
			}
		}
	}
}

// plain makes empty and nil slices the same.
func plain(j *model.Job) *model.Job {
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		case reflect.Slice:
			if v.Len() == 0 {
				v.SetZero()
			}
			for i := range v.Len() {
				walk(v.Index(i))
			}
		}
	}
	walk(reflect.ValueOf(j))
	return j
}

func someTasks(rng *rand.Rand) model.TaskSet {
	var list []int32
	for i := range int32(rng.IntN(30)) {
		if rng.IntN(2) == 0 {
			list = append(list, i)
		}
	}
	return model.TaskSetOf(list)
}

func fill(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth == 0 || rng.IntN(4) > 0 || v.Type().Elem() == reflect.TypeFor[model.Spec]() {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rng, v.Field(i), depth+1)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[model.TaskSet]() {
			return
		}
		if n := rng.IntN(20); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(rng, v.Index(i), depth+1)
			}
		}
	case reflect.String:
		v.SetString(strings.Repeat("é", rng.IntN(200)))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt((rng.Int64() >> rng.IntN(63)) * int64(1-2*rng.IntN(2)) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(rng.Uint64() >> rng.IntN(63) >> (64 - v.Type().Bits()))
	default:
		panic(v.Kind())
	}
}

func sample(n int) []byte {
	c := proto.JobsChunk{Now: 1_700_000_000_000}
	for i := range n {
		c.Jobs = append(c.Jobs, &model.Job{ID: model.JobID(100000 + i), Task: model.NoTask, State: model.Pending,
			Reason: model.ReasonPriority, Priority: 4294900, Submit: 1_700_000_000_000, Eligible: 1_700_000_000_000, Attempt: 1,
			Spec: &model.Spec{Name: fmt.Sprintf("job-%d", i), UID: 1000, GID: 1000, Groups: []uint32{1000, 1001, 1002}, User: "alice",
				Group: "users", Account: "physics", QOS: "normal", Partitions: []string{"batch"}, Script: strings.Repeat("a", 64),
				Env: strings.Repeat("b", 64), Command: "/home/alice/project/run.sh", Submit: "gsubmit -n1 run.sh",
				WorkDir: "/home/alice/project", StdIn: "/dev/null", StdOut: "/home/alice/project/slurm-%j.out", Host: "login1",
				Umask: 18, Limits: make([]model.RLimit, 9), MinNodes: 1, Tasks: 1, CPUsPerTask: 1, LimitS: 3600,
				Gres: []model.GresReq{{Name: "gpu", Count: 1}}}})
	}
	body, err := proto.Encode(&c)
	if err != nil {
		panic(err)
	}
	return body
}

// TestCutShort: a list that ends too early is an error wherever it ends.
func TestCutShort(t *testing.T) {
	body := sample(3)
	var r Reader
	for n := range body {
		if err := r.Each(body[:n], func(model.Time, *model.Job) error { return nil }); err == nil {
			t.Fatalf("%d of %d bytes: no error", n, len(body))
		}
	}
}

func FuzzEach(f *testing.F) {
	f.Add(sample(2))
	f.Add([]byte{0x92, 1, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x92, 1, 0x91, 0x94, 1, 1, 1, 0x91, 0x93, 0, 5, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Reader
		_ = r.Each(body, func(_ model.Time, j *model.Job) error { // errors are expected, panics are not
			_ = clone(j).Tasks.String()
			return nil
		})
	})
}

// The two ways over the same chunk; cpu-ns/job is what to compare on a busy machine.
func BenchmarkEach(b *testing.B) {
	var r Reader
	benchmark(b, func(body []byte) error { return r.Each(body, func(model.Time, *model.Job) error { return nil }) })
}

func BenchmarkCodec(b *testing.B) {
	benchmark(b, func(body []byte) error {
		var c proto.JobsChunk
		return proto.Decode(body, &c)
	})
}

func benchmark(b *testing.B, read func(body []byte) error) {
	body := sample(proto.ChunkJobs)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	before := cpuNS(b)
	for b.Loop() {
		if err := read(body); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuNS(b)-before)/float64(b.N)/proto.ChunkJobs, "cpu-ns/job")
}

func cpuNS(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// clone gives a job of its own. It shares strings with the chunk that it came in.
func clone(j *model.Job) *model.Job {
	c := *j
	c.Tasks = append(model.TaskSet(nil), j.Tasks...)
	c.Deps = append([]model.Dep(nil), j.Deps...)
	s := *j.Spec
	s.Partitions = append([]string(nil), s.Partitions...)
	s.Gres = append([]model.GresReq(nil), s.Gres...)
	s.ReqNodes = append([]string(nil), s.ReqNodes...)
	s.ExcNodes = append([]string(nil), s.ExcNodes...)
	s.Deps = append([]model.Dep(nil), s.Deps...)
	s.Tasklist = append(model.TaskSet(nil), s.Tasklist...)
	c.Spec = &s
	if j.Run != nil {
		run := *j.Run
		if run.Alloc != nil {
			run.Alloc = &model.Alloc{Nodes: append([]model.NodeAlloc(nil), run.Alloc.Nodes...)}
			for i := range run.Alloc.Nodes {
				n := &run.Alloc.Nodes[i]
				n.CPUs = append(model.Bits(nil), n.CPUs...)
				n.Gres = append([]model.GresAlloc(nil), n.Gres...)
				for k := range n.Gres {
					n.Gres[k].Index = append(model.Bits(nil), n.Gres[k].Index...)
				}
			}
		}
		c.Run = &run
	}
	if j.End != nil {
		end := *j.End
		c.End = &end
	}
	return &c
}
