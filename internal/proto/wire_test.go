package proto

import (
	"testing"

	"gbatch/internal/wire/wiretest"
)

// TestWire: every struct and field has its line, and no bytes cost more than they may. A struct that no other one holds
// is named here.
func TestWire(t *testing.T) {
	wiretest.Package(t,
		&AccountsChunk{}, &AccountsRequest{}, &AcctRequest{}, &AttendRequest{}, &CancelRequest{}, &ConfigReply{},
		&DiagReply{}, &DoctorReply{}, &DoctorRequest{}, &DumpChunk{}, &EditAccountsRequest{}, &Empty{}, &Forward{},
		&Heartbeat{}, &Hello{}, &JobsChunk{}, &JobsRequest{}, &MIGReply{}, &MIGRequest{}, &NodeAnswer{},
		&NodeAsk{}, &NodesChunk{}, &NodesRequest{}, &Orders{}, &PartitionsReply{}, &PeersReply{}, &PeersRequest{},
		&PingReply{}, &PrioChunk{}, &PrioRequest{}, &PutReply{}, &Put{}, &ReconfigureReply{},
		&ReconfigureRequest{}, &RecordsChunk{}, &ReportAck{}, &Reports{}, &ReservationsReply{}, &ReserveReply{},
		&ReserveRequest{}, &ScriptReply{}, &ScriptRequest{}, &SharesReply{}, &SharesRequest{}, &StatReply{},
		&StatRequest{}, &StepDoor{}, &StepEvent{}, &StepFiles{}, &StepPart{}, &StepSignal{}, &StepsChunk{},
		&StepsRequest{}, &SubmitEachReply{}, &SubmitEachRequest{}, &SubmitReply{}, &TargetsReply{},
		&UpdateJobRequest{}, &UpdateNodeRequest{}, &WaitReply{}, &WaitRequest{}, &Welcome{}, &WhyReply{},
		&WhyRequest{})
}
