package proto

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	old "gbatch/internal/codecgen/wire"
	"gbatch/internal/wire"
	"gbatch/internal/wire/wiretest"
)

// TestSameBytes: the lists of fields write what the generated codec writes, and read what it reads, for every struct.
func TestSameBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range []wire.Coder{
		new(AccountsChunk),
		new(AccountsRequest),
		new(AcctEdit),
		new(AcctRequest),
		new(ArrayShape),
		new(Attempt),
		new(AttendRequest),
		new(Caller),
		new(CancelRequest),
		new(Change),
		new(ConfigReply),
		new(ControllerInfo),
		new(DiagPass),
		new(DiagRPC),
		new(DiagReply),
		new(DoctorReply),
		new(DoctorRequest),
		new(DumpChunk),
		new(EditAccountsRequest),
		new(Empty),
		new(Finding),
		new(Forward),
		new(Freeze),
		new(GresTotals),
		new(Hardware),
		new(Heartbeat),
		new(HeldUnits),
		new(Hello),
		new(JobFilter),
		new(JobRef),
		new(JobsChunk),
		new(JobsRequest),
		new(Launch),
		new(MIGAsk),
		new(MIGDone),
		new(MIGNode),
		new(MIGReply),
		new(MIGRequest),
		new(MIGState),
		new(NodeAnswer),
		new(NodeAsk),
		new(NodeFindings),
		new(NodeInfo),
		new(NodePids),
		new(NodesChunk),
		new(NodesRequest),
		new(Orders),
		new(PartitionsReply),
		new(PeersReply),
		new(PeersRequest),
		new(PingReply),
		new(PrioChunk),
		new(PrioRequest),
		new(PrioRow),
		new(Problem),
		new(Put),
		new(PutReply),
		new(ReconfigureReply),
		new(ReconfigureRequest),
		new(RecordsChunk),
		new(Report),
		new(ReportAck),
		new(Reports),
		new(ReservationsReply),
		new(ReserveReply),
		new(ReserveRequest),
		new(ResvSize),
		new(RunningStep),
		new(ScriptReply),
		new(ScriptRequest),
		new(ShareRow),
		new(SharesReply),
		new(SharesRequest),
		new(StatOf),
		new(StatReply),
		new(StatRequest),
		new(StepBind),
		new(StepDoor),
		new(StepEvent),
		new(StepFile),
		new(StepFiles),
		new(StepIO),
		new(StepJob),
		new(StepNeed),
		new(StepNode),
		new(StepPart),
		new(StepProgram),
		new(StepRef),
		new(StepRequest),
		new(StepSignal),
		new(StepStat),
		new(StepTell),
		new(StepTerminal),
		new(StepsChunk),
		new(StepsRequest),
		new(Stop),
		new(SubmitEachReply),
		new(SubmitEachRequest),
		new(SubmitReply),
		new(SubmitRequest),
		new(TargetResult),
		new(TargetsReply),
		new(UnitHolder),
		new(UnitReading),
		new(UpdateJobRequest),
		new(UpdateNodeRequest),
		new(WaitReply),
		new(WaitRequest),
		new(Welcome),
		new(WhyReply),
		new(WhyRequest),
	} {
		typ := reflect.TypeOf(s).Elem()
		for range 200 {
			x, y, z := reflect.New(typ), reflect.New(typ), reflect.New(typ)
			wiretest.Fill(rng, x.Elem(), 0)
			theirs, err := old.Marshal(x.Interface().(old.Codec))
			if err != nil {
				t.Fatal(err)
			}
			ours, err := wire.Marshal(x.Interface().(wire.Coder))
			if err != nil || !bytes.Equal(theirs, ours) {
				t.Fatalf("%s: %+v, %v\n% x\n% x", typ, x.Elem(), err, theirs, ours)
			}
			if err := old.Unmarshal(ours, y.Interface().(old.Codec)); err != nil {
				t.Fatal(err)
			}
			if err := wire.Unmarshal(theirs, z.Interface().(wire.Coder)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(y.Interface(), z.Interface()) || !reflect.DeepEqual(x.Interface(), z.Interface()) {
				t.Fatalf("%s: %+v\n%+v", typ, y.Elem(), z.Elem())
			}
		}
	}
}
