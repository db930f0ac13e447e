package state

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"gbatch/internal/model"
)

// once gives a command that makes parts under a key.
func once(key string, parts ...Body) *Once {
	c := &Once{Key: key, Step: OnceMake, Reply: []byte("answer to " + key)}
	for _, b := range parts {
		data, err := Encode(epoch, b)
		if err != nil {
			panic(err) // a test's own command
		}
		c.Parts = append(c.Parts, data)
	}
	return c
}

// A request that comes again changes nothing and has its answer; one of which nothing was made is made.
func TestOnce(t *testing.T) {
	st := New()
	at := epoch
	apply := func(b Body) Result {
		t.Helper()
		data, err := Encode(at, b)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		r := st.Apply(c)
		if err := st.Check(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	apply(&SetConfig{Config: &model.Config{Cluster: "c", Partitions: []*model.Partition{{Name: "p"}}}})
	for range 3 {
		apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}}})
	}
	all := []model.JobRef{{Job: 1, Task: model.NoTask}, {Job: 9, Task: model.NoTask}, {Job: 2, Task: model.NoTask}}
	stop := once("a", &Stop{Targets: all[:2], Event: model.EvCancel}, &Stop{Targets: all[1:], Event: model.EvCancel})
	stop.Spots = []int32{0, 4, 7, 8}
	res := apply(stop)
	if res.Refusal != OK || len(res.Parts) != 2 || res.Parts[0].Each[1] != NoSuchJob {
		t.Fatalf("%+v", res)
	}
	a := st.View().Answer("a")
	if want := []RefusedTarget{{4, NoSuchJob}, {7, NoSuchJob}}; string(a.Reply) != "answer to a" ||
		!reflect.DeepEqual(a.Refused, want) {
		t.Errorf("%+v", a)
	}
	// Again, as another controller would after a snapshot.
	st = restored(t, st)
	if r := apply(once("a", &Stop{Targets: []model.JobRef{{Job: 3, Task: model.NoTask}},
		Event: model.EvCancel})); r.Refusal !=
		Repeated || st.View().Job(3).State != model.Pending {
		t.Errorf("%+v, job 3 is %s", r, st.View().Job(3).State)
	}
	if got := st.View().Answer("a"); !reflect.DeepEqual(got.Refused, a.Refused) || !bytes.Equal(got.Reply, a.Reply) {
		t.Errorf("%+v", got)
	}
	// Refused as a whole: nothing is remembered.
	drop := once("b", &Reserve{Op: DropResv, Resv: &model.Reservation{Name: "x"}})
	for range 2 {
		if r := apply(drop); r.Refusal != OK || r.Parts[0].Refusal != NoSuchReservation || st.View().Answer("b") != nil {
			t.Errorf("%+v %+v", r, st.View().Answer("b"))
		}
	}
	// Something outside is begun once; its answer comes later.
	if r := apply(&Once{Key: "c", Step: OnceBegin}); r.Refusal != OK || !st.View().Answer("c").Begun {
		t.Errorf("%+v", r)
	}
	if r := apply(&Once{Key: "c", Step: OnceBegin}); r.Refusal != Repeated {
		t.Errorf("%+v", r)
	}
	apply(&Once{Key: "c", Step: OnceFinish, Reply: []byte("done")})
	if a := st.View().Answer("c"); a.Begun || string(a.Reply) != "done" {
		t.Errorf("%+v", a)
	}
	// Forgotten with age, by a Tick or by other requests.
	at += requestAgeS*1000 + 1
	apply(once("d", &Mailed{}))
	if st.View().Answer("a") != nil || st.View().Answer("c") != nil || st.View().Answer("d") == nil {
		t.Error("old answers stay, or new ones go")
	}
	at += requestAgeS*1000 + 1
	apply(&Tick{})
	if st.View().Answer("d") != nil {
		t.Error("time passes, and an old answer stays")
	}
}

// Neither many requests nor large answers pile up.
func TestAnswersAreBounded(t *testing.T) {
	st := New()
	for i := range 3 * MaxAnswerBytes >> 20 {
		c := once(fmt.Sprint(i), &Mailed{})
		c.Reply = make([]byte, 1<<20)
		fold(t, st, encoded(t, c))
	}
	if n := st.answers.byKey.Len(); n != MaxAnswerBytes>>20+1 {
		t.Errorf("%d large answers are remembered", n)
	}
	for i := range MaxAnswers + 1000 {
		fold(t, st, encoded(t, once(fmt.Sprint("s", i), &Mailed{})))
	}
	if n := st.answers.byKey.Len(); n != MaxAnswers {
		t.Errorf("%d answers are remembered", n)
	}
	if err := st.answers.check(); err != nil {
		t.Error(err)
	}
}

// TestAnswersTakeLittle: 100,000 remembered changes take less than 32 MiB of memory and 8 MB of a snapshot.
func TestAnswersTakeLittle(t *testing.T) {
	st := New()
	var a, b runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&a)
	for i := range 100_000 {
		c := once(fmt.Sprintf("rs:%016d", i), &Mailed{})
		c.Reply = bytes.Clone([]byte("\x91\x91\x93\x93\xce\x00\x01\x02\x03\xff\x90\x00\xa0"))
		fold(t, st, encoded(t, c))
	}
	runtime.GC()
	runtime.ReadMemStats(&b)
	heap, snap := int(b.HeapAlloc)-int(a.HeapAlloc), len(snapshot(t, st))
	t.Logf("100,000 answers: %d bytes of memory, %d of a snapshot", heap, snap)
	if heap > 32<<20 || snap > 8_000_000 {
		t.Errorf("100,000 answers take %d bytes of memory, %d of a snapshot", heap, snap)
	}
	runtime.KeepAlive(st)
}
