package env_test

import (
	"fmt"
	"testing"
	"time"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// What counts from now counts by the leader's clock, which this host's may be far from; other moments and a leader that
// does not answer need no other clock than this host's.
func TestMomentsFromNow(t *testing.T) {
	f := clitest.New(t, func(e *env.Env) int {
		at, err := e.ReadDate(e.Args[0])
		if err != nil {
			fmt.Fprintln(e.Stderr, err)
			return 1
		}
		fmt.Fprintf(e.Stdout, "%d", at)
		return 0
	})
	for text, want := range map[string]model.Time{
		"now": clitest.DemoNow, "now+1hour": clitest.DemoNow + 3600_000, " NOW + 2 minutes": clitest.DemoNow + 120_000,
		"2030-12-24T18:00": model.Time(time.Date(2030, 12, 24, 18, 0, 0, 0, time.Local).UnixMilli()),
	} {
		out, errOut, rc := f.Run("gsubmit", text)
		var got model.Time
		if _, err := fmt.Sscan(out, &got); err != nil || rc != 0 || max(got, want)-min(got, want) > 5000 {
			t.Errorf("%q is %s%s, not %d", text, out, errOut, want)
		}
	}
	f.Fail[proto.KindPing] = rpc.Errorf(proto.CodeBadRequest, "no")
	out, _, _ := f.Run("gsubmit", "now+1hour")
	var got model.Time
	want := model.Time(time.Now().Add(time.Hour).UnixMilli())
	if _, err := fmt.Sscan(out, &got); err != nil || max(got, want)-min(got, want) > 60_000 {
		t.Errorf("without an answer it is %s, not about %d", out, want)
	}
}
