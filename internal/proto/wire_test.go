package proto

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/wire"
	"gbatch/internal/wire/wiretest"
)

// TestWire: every struct and field has its line, and no bytes cost more than they may. A struct that no other one holds
// is named here.
func TestWire(t *testing.T) {
	wiretest.Package(t,
		&AccountsChunk{}, &AccountsRequest{}, &AcctRequest{}, &AttendRequest{}, &BeginEmptyRequest{}, &CancelRequest{},
		&Asked{}, &AskedReply{},
		&ConfigReply{}, &CrontabRequest{}, &CrontabReply{}, &SetCrontabRequest{}, &SetCrontabReply{},
		&DbdReply{}, &DiagReply{}, &DoctorReply{}, &DoctorRequest{}, &DumpChunk{}, &DumpRequest{},
		&CertsReply{}, &EditCertsRequest{}, &EditCertsReply{}, &Issued{}, &Join{}, &TokenRequest{}, &TokenReply{},
		&EditTokensRequest{}, &EditTokensReply{}, &Renew{}, &Revoked{}, &Sign{},
		&EditAccountsRequest{}, &EditMoneyRequest{}, &EditMoneyReply{}, &MoneyRequest{}, &MoneyChunk{}, &Empty{}, &Forward{},
		&TakeoverRequest{}, &TakeoverReply{}, &ControllersReply{}, &EditControllersRequest{}, &EditControllersReply{},
		&HistoryQuery{}, &HistoryReply{}, &Samples{},
		&Heartbeat{}, &Hello{}, &JobsChunk{}, &JobsRequest{}, &MIGReply{}, &MIGRequest{}, &MomentReply{}, &NodeAnswer{},
		&NodeAsk{}, &NodesChunk{}, &NodesRequest{}, &Once{}, &Orders{}, &PartitionsReply{}, &PoolsReply{},
		&PeersReply{}, &PeersRequest{}, &DaemonRequest{}, &DaemonReply{},
		&PingReply{}, &PresentReply{}, &PresentRequest{},
		&PrioChunk{}, &PrioRequest{}, &PutReply{}, &Put{}, &RawJobs{}, &ReconfigureReply{},
		&ReconfigureRequest{}, &RecordsChunk{}, &ReportAck{}, &ReportRequest{},
		&ReportChunk{}, &UsageQuery{}, &Reports{}, &ReservationsReply{}, &ReserveReply{},
		&ReserveRequest{}, &ScriptReply{}, &ScriptRequest{}, &SharesReply{}, &SharesRequest{}, &Sight{}, &Stale{},
		&StaleEnd{}, &StatReply{},
		&StatRequest{}, &StepAdopt{}, &StepDoor{}, &StepEvent{}, &StepFiles{}, &StepPart{}, &StepSignal{}, &StepWords{},
		&StepsChunk{},
		&StepsRequest{}, &SubmitEachReply{}, &SubmitEachRequest{}, &SubmitReply{}, &TargetsReply{}, &TailReply{},
		&TailRequest{},
		&UpdateJobRequest{}, &UpdateNodeRequest{},
		&UpdatePartitionRequest{}, &SetDebugRequest{}, &WaitReply{}, &WaitRequest{}, &Welcome{}, &WhyReply{}, &WitnessReply{},
		&WhyRequest{}, &TriggersChunk{}, &SetTriggerRequest{}, &ClearTriggersRequest{}, &ClearTriggersReply{})
}

// TestStoredRecords: gdbd's chunks have records as they are stored, and records with few fields are read too.
func TestStoredRecords(t *testing.T) {
	chunk := &RecordsChunk{}
	for range ChunkJobs {
		use := &model.Usage{Nodes: []model.NodeUsage{{Node: "n", GPUs: make([]model.GPUUsage, 1)}}, Batch: &model.NodeUsage{}}
		chunk.Records = append(chunk.Records,
			&model.Record{Exit: model.Exit{Use: use}, Step: &model.Step{Exit: model.Exit{Use: use}}})
	}
	stored, err := wire.Marshal(chunk)
	if err != nil {
		t.Fatal(err)
	}
	var got RecordsChunk
	if err := Decode(stored, &got); err != nil || len(got.Records) != ChunkJobs {
		t.Errorf("%d records, %v", len(got.Records), err)
	}
}
