package dbd

import (
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestWrongClockOfHost: gdbd's host is five hours behind. What runs is counted by the cluster's clock, and its samples
// are taken.
func TestWrongClockOfHost(t *testing.T) {
	const behind = 5 * time.Hour
	d := startDaemon(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(-behind) } })
	m := mustDial(t, d.Addr(), d.pki)
	now := model.Time(time.Now().UnixMilli())
	send := func(kind uint16, x proto.Message) []byte {
		t.Helper()
		body, err := proto.Encode(x)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Call(t.Context(), kind, body)
		if err != nil {
			t.Fatal(err)
		}
		return f.Body
	}
	r := rec(1, 1, running)
	r.Submit, r.Eligible, r.Start = now-2*hour, now-2*hour, now-hour
	var reply proto.PutReply
	if err := proto.Decode(send(proto.KindPut, &proto.Put{Cluster: "c", Now: now, Records: []*model.Record{r}}),
		&reply); err != nil {
		t.Fatal(err)
	}
	if off := reply.Now - now; off < 0 || off > model.Time(time.Minute.Milliseconds()) {
		t.Errorf("gdbd says that it is %v later than the leader said", time.Duration(off)*time.Millisecond)
	}
	rows := reportOf(t, d.db, proto.ReportRequest{What: proto.ReportUsage, Start: now - 4*hour}).Rows
	if len(rows) != 1 || len(rows[0].TRES) == 0 || rows[0].TRES[0].TRES != "cpu" ||
		rows[0].TRES[0].Count < 3600*int64(r.AllocCPUs) || rows[0].TRES[0].Count > 3660*int64(r.AllocCPUs) {
		t.Errorf("a job that runs for an hour: %+v", rows)
	}
	send(proto.KindSamples, &proto.Samples{At: now / 60_000 * 60_000,
		List: []proto.Sample{{Of: proto.HistoryCluster, Values: []int64{1, 1, 1, 2, 8, 8, 8}}}})
}
