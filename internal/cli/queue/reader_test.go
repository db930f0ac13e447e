package queue

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
	"gbatch/internal/wire/wiretest"
)

// randomChunk gives a list of random jobs with valid task sets.
func randomChunk(rng *rand.Rand, n int) *proto.JobsChunk {
	chunk := &proto.JobsChunk{Now: model.Time(rng.IntN(1000))}
	for range n {
		j := &model.Job{}
		wiretest.Fill(rng, reflect.ValueOf(j).Elem(), 0)
		if j.Spec == nil {
			j.Spec = &model.Spec{Name: "plain"}
		}
		j.Tasks, j.Spec.Tasklist = someTasks(rng), someTasks(rng)
		chunk.Jobs = append(chunk.Jobs, j)
	}
	return chunk
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

func encode(t testing.TB, x wire.Coder) []byte {
	t.Helper()
	data, err := proto.Encode(x)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestReaderReadsTheChunk checks that a job in the reused record has all its own fields and none of earlier jobs.
func TestReaderReadsTheChunk(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	var r jobReader
	for range 100 {
		chunk := randomChunk(rng, rng.IntN(20))
		n := 0
		err := r.each(encode(t, chunk), func(now model.Time, j *model.Job) error {
			if now != chunk.Now || !bytes.Equal(encode(t, j), encode(t, chunk.Jobs[n])) {
				t.Fatalf("job %d at %d:\n got %+v\nwant %+v at %d", n, now, j, chunk.Jobs[n], chunk.Now)
			}
			n++
			return nil
		})
		if err != nil || n != len(chunk.Jobs) {
			t.Fatalf("%d of %d jobs, %v", n, len(chunk.Jobs), err)
		}
	}
}

// TestReaderFails checks that the reader fails on truncated lists and invalid jobs, and returns the caller's error
// unchanged.
func TestReaderFails(t *testing.T) {
	chunk := randomChunk(rand.New(rand.NewPCG(1, 2)), 3)
	plain, err := wire.Marshal(chunk)
	if err != nil {
		t.Fatal(err)
	}
	none := func(model.Time, *model.Job) error { return nil }
	var r jobReader
	for n := range plain {
		if err := r.each(plain[:n], none); err == nil {
			t.Fatalf("%d of %d bytes: no error", n, len(plain))
		}
	}
	chunk.Jobs[1].Spec = nil
	if err := r.each(encode(t, chunk), none); !errors.Is(err, errNoJob) {
		t.Errorf("a job without a description: %v", err)
	}
	chunk.Jobs[1].Spec = &model.Spec{Tasklist: model.TaskSet{{Lo: 5, Hi: 3, Step: 1}}}
	if err := r.each(encode(t, chunk), none); !errors.Is(err, errNoJob) {
		t.Errorf("a range that ends before it begins: %v", err)
	}
	boom := errors.New("no more")
	if err := r.each(encode(t, chunk), func(model.Time, *model.Job) error { return boom }); err != boom {
		t.Errorf("the caller's error comes back as %v", err)
	}
}

// FuzzReader checks that any bytes give jobs or an error, never a panic.
func FuzzReader(f *testing.F) {
	f.Add(encode(f, randomChunk(rand.New(rand.NewPCG(1, 2)), 2)))
	f.Add([]byte{0x92, 1, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x92, 1, 0x91, 0x94, 1, 1, 1, 0x91, 0x93, 0, 5, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		var r jobReader
		_ = r.each(body, func(_ model.Time, j *model.Job) error { // errors are expected, panics are not
			_ = j.Tasks.String() + j.Spec.Tasklist.String()
			return nil
		})
	})
}

// BenchmarkReader and BenchmarkDecode read the same chunks in two ways.
func BenchmarkReader(b *testing.B) {
	_, chunks := tenThousand(b)
	var r jobReader
	b.ReportAllocs()
	for b.Loop() {
		for _, body := range chunks {
			if err := r.each(body, func(model.Time, *model.Job) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	_, chunks := tenThousand(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, body := range chunks {
			if err := proto.Decode(body, &proto.JobsChunk{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
