package ctld

import (
	"errors"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// TestDescriptionsAreBounded: a job's texts, lists, numbers and whole description have limits, whatever client sends
// them; a range of tasks without a step divides nothing by zero.
func TestDescriptionsAreBounded(t *testing.T) {
	long := strings.Repeat("x", proto.MaxFieldBytes+1)
	for name, sp := range map[string]*model.Spec{
		"dependency":   {DepText: long},
		"array":        {ArrayText: long},
		"command line": {Submit: long},
		"reservation":  {Reservation: long},
		"arguments":    {Args: []string{strings.Repeat("x", proto.MaxSpecBytes)}},
		"many empty":   {Args: make([]string, proto.MaxSpecBytes)},
		"nodes":        {ReqNodes: make([]string, 1<<16), ExcNodes: []string{strings.Repeat("x", 200<<10)}},
		"limits":       {Limits: make([]model.RLimit, maxLimits+1)},
		"limit":        {Limits: []model.RLimit{{Resource: maxLimits}}},
		"signal":       {Warning: &model.Warning{Signal: 65}},
		"no signal":    {Warning: &model.Warning{BeforeS: 60}},
		"umask":        {Umask: 0o1777},
		"gres":         {Gres: []model.GresReq{{Name: "gpu", Count: 1, Per: model.PerTask + 1}}},
		"step 0":       {Tasklist: model.TaskSet{{Lo: 0, Hi: 10}}},
		"descending":   {Tasklist: model.TaskSet{{Lo: 10, Hi: 0, Step: 1}}},
	} {
		var e *rpc.Error
		if err := bounded(sp); !errors.As(err, &e) || e.Text == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, sp := range map[string]*model.Spec{
		"arguments": {Args: []string{strings.Repeat("x", proto.MaxSpecBytes-4096)}, Groups: make([]uint32, 65536)},
		"texts":     {DepText: long[1:], ArrayText: long[1:], Submit: long[1:]},
		"signal":    {Warning: &model.Warning{Signal: 64, BeforeS: model.MaxWarningS}},
		"tasks":     {Tasklist: model.TaskSet{{Lo: 0, Hi: 10, Step: 5}}},
	} {
		if err := bounded(sp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOnlyRefusedRecordsArePutAside: what a busy, full or unreachable gdbd answers is no reason to give a record up.
func TestOnlyRefusedRecordsArePutAside(t *testing.T) {
	for code, want := range map[uint16]bool{proto.CodeBadRequest: true, rpc.CodeTooLarge: true, proto.CodeBusy: false,
		rpc.CodeBusy: false, proto.CodeNoAccounting: false, rpc.CodeInternal: false, proto.CodeAccess: false} {
		if got := refusedRecords(rpc.Errorf(code, "no")); got != want {
			t.Errorf("code %#x: %v", code, got)
		}
	}
	if refusedRecords(rpc.ErrLost) || refusedRecords(nil) {
		t.Error("a lost connection refuses no record")
	}
	if _, err := new(dbd).put(t.Context(), nil, &proto.Put{Cluster: strings.Repeat("x", 1<<20)}); !refusedRecords(err) {
		t.Errorf("what can't be encoded: %v", err)
	}
}
