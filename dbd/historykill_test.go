package dbd

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// pastOf asks gdbd for a series of samples.
func pastOf(t *testing.T, m *rpc.Mux, rq proto.HistoryRequest) (points []proto.HistoryPoint) {
	t.Helper()
	body, err := proto.Encode(&proto.HistoryQuery{Ask: rq})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Stream(t.Context(), proto.KindPast, body, func(f *rpc.Frame) error {
		var reply proto.HistoryReply
		err := proto.Decode(f.Body, &reply)
		for i := range reply.List {
			points = append(points, reply.List[i].Points...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// TestHistoryKilled kills gdbd with SIGKILL again and again while samples arrive, faster than ever in life, over many
// hours. Each time all acknowledged minutes are there, each with what it was sent with, and at most the one that was on
// its way beside them: the minutes, and the means of ten minutes that are made when an hour is over.
func TestHistoryKilled(t *testing.T) {
	dir := t.TempDir()
	certificates(t, filepath.Join(dir, "pki"))
	begin := time.Now().Add(-22 * time.Hour).Truncate(time.Hour)
	at := func(minute int64) model.Time {
		return model.Time(begin.Add(time.Duration(minute) * time.Minute).UnixMilli())
	}
	// A minute comes in two parts, and has its own number as each value.
	parts := func(minute int64) []proto.Samples {
		return []proto.Samples{
			{At: at(minute), List: []proto.Sample{{Of: proto.HistoryCluster, Values: []int64{minute, 1, minute, 2, 8, 8, 8}}}},
			{At: at(minute), Part: 1, List: []proto.Sample{{Of: proto.HistoryGPU, Name: "n1/0",
				Values: []int64{minute, 10, minute, 50, 7, 1000}}}}}
	}
	send := func(m *rpc.Mux, p *proto.Samples) error {
		body, err := proto.Encode(p)
		if err != nil {
			return err
		}
		_, err = m.Call(t.Context(), proto.KindSamples, body)
		return err
	}
	acked := int64(0) // minutes whose parts were both acknowledged
	whole := func(m *rpc.Mux) {
		t.Helper()
		for _, rq := range []proto.HistoryRequest{{Of: proto.HistoryCluster},
			{Of: proto.HistoryGPU, Names: []string{"n1/0"}}} {
			rq.Start, rq.StepS = at(0), 60
			got := pastOf(t, m, rq)
			if n := int64(len(got)); n < acked || n > acked+1 {
				t.Fatalf("kind %d: %d minutes are there, %d were acknowledged", rq.Of, n, acked)
			}
			for i := range got {
				if minute := int64(i) + 1; got[i].Values[0] != minute || got[i].At != at(minute) {
					t.Fatalf("kind %d: minute %d has %v, of %s; minutes up to %d were acknowledged", rq.Of, minute,
						got[i].Values, time.UnixMilli(int64(got[i].At)), acked)
				}
			}
			rq.StepS = proto.HistoryCoarseS
			got = pastOf(t, m, rq)
			const ten = proto.HistoryCoarseS / 60
			for i := range acked / ten {
				first, last := i*ten+1, (i+1)*ten
				if want := (first + last + 1) / 2; int64(len(got)) <= i || got[i].Values[0] != want {
					t.Fatalf("kind %d: the means of ten minutes are %+v; number %d has to be %d", rq.Of, got, i, want)
				}
			}
		}
	}
	rng := newRand(t)
	const rounds = 8
	for range rounds {
		addr, kill := startChild(t, dir)
		m := mustDial(t, addr, filepath.Join(dir, "pki"))
		whole(m)
		puts := 30 + rng.IntN(100)
		var err error
		for i := 0; err == nil; i++ {
			if i == puts {
				go kill()
			}
			for _, p := range parts(acked + 1) {
				if err = send(m, &p); err != nil {
					break
				}
			}
			if err == nil {
				acked++
			}
		}
		if said := (*rpc.Error)(nil); errors.As(err, &said) && said.Code == proto.CodeBadRequest {
			t.Fatal(err) // it was refused
		}
		kill()
	}
	addr, _ := startChild(t, dir)
	whole(mustDial(t, addr, filepath.Join(dir, "pki")))
	if acked < 3*60 {
		t.Errorf("%d minutes are no three hours", acked)
	}
	t.Logf("%d minutes acknowledged through %d kills", acked, rounds)
}
