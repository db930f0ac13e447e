package cli

import (
	"strings"
	"sync"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// A command whose change has an unknown outcome fails, and says where to look.
func TestOutcomeUnknown(t *testing.T) {
	f := clitest.New(t, Main)
	for _, kind := range []uint16{proto.KindUpdateJob, proto.KindUpdateNode, proto.KindReserve, proto.KindReconfigure,
		proto.KindSignal, proto.KindSubmit} {
		row := proto.RequestOf(kind)
		f.Fail[kind] = rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown("the connection broke"))
	}
	var all sync.WaitGroup // each asks again for as long as a command has patience
	for _, command := range []string{"gcontrol requeue 7", "gcontrol hold 7", "gcontrol update NodeName=n1 State=RESUME",
		"gcontrol delete ReservationName=r",
		"gcontrol reconfigure", "gcancel -s USR1 7"} {
		all.Go(func() {
			words := strings.Fields(command)
			out, errOut, rc := f.Run(words[0], words[1:]...)
			if rc == 0 || out != "" ||
				!strings.Contains(errOut, "the connection broke; it is not known whether the change was made: look at ") {
				t.Errorf("%s: rc %d\n%s%s", command, rc, out, errOut)
			}
		})
	}
	all.Wait()
}
