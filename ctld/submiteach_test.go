package ctld

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// TestEntryRefused: a crontab that a limit refuses is refused for the entry that breaks it.
func TestEntryRefused(t *testing.T) {
	c := ruled(t)
	cmd := &state.Crontab{}
	for line := range int32(3) {
		cmd.Jobs = append(cmd.Jobs, state.Submit{Spec: &model.Spec{User: "ann", QOS: string('a' + rune(line)),
			Cron: &model.Cron{First: line + 1, Last: line + 1}}})
	}
	res := state.Result{Refusal: state.OverLimit, Reason: model.ReasonQOSMaxSubmitJobPerUserLimit,
		Each: []state.Refusal{state.OK, state.OverLimit}}
	got, err := entryRefused(c.machine.View(), cmd, res)
	if err != nil || got.Entry.Last != 2 || got.Code != proto.CodePolicy || !strings.Contains(got.Refused, "in QOS b ") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = entryRefused(c.machine.View(), cmd, state.Result{Refusal: state.TooManyJobs}); err == nil {
		t.Errorf("a crontab for which there is no room at all: %+v", got)
	}
}

// TestCrontabOf: users have crontabs where the site allows it; operators see all, administrators change those of
// ordinary users, and only root those of root and SlurmUser. A crontab's jobs are its owner's.
func TestCrontabOf(t *testing.T) {
	c := ruled(t)
	ctx, read, set := context.Background(), uint16(proto.KindCrontab), uint16(proto.KindSetCrontab)
	caller := func(uid uint32) *caller {
		who := at(uid)
		who.User = c.people.Name(ctx, uid)
		return who
	}
	var why *rpc.Error
	_, err := c.crontab(ctx, caller(plainUser), &proto.CrontabRequest{})
	if !errors.As(err, &why) || why.Code != proto.CodeRequeue {
		t.Errorf("without ScronParameters: %v", err)
	}
	_, err = c.setCrontab(ctx, caller(plainUser), &proto.SetCrontabRequest{Text: []byte("#\n")})
	if !errors.As(err, &why) || why.Code != proto.CodeRequeue {
		t.Errorf("without ScronParameters: %v", err)
	}
	_, _, err = c.prepare(c.machine.View(), *caller(plainUser), &proto.SubmitRequest{Spec: &model.Spec{
		Cron: &model.Cron{Times: "* * * * *", First: 1, Last: 1}}})
	if !errors.As(err, &why) || !strings.Contains(why.Text, "gcrontab") {
		t.Errorf("a job that comes back, without a crontab: %v", err)
	}
	data, err := state.Encode(2000, &state.SetConfig{Config: &model.Config{Cluster: "c",
		Params: model.Params{Crontabs: true, SlurmUID: systemUID}}})
	if err != nil {
		t.Fatal(err)
	}
	c.machine.Apply(9, [][]byte{data})
	for _, x := range []struct {
		who  uint32
		kind uint16
		name string
		want uint32 // whose it is; NoID: refused
	}{
		{plainUser, read, "", plainUser}, {plainUser, set, "ann", plainUser}, {plainUser, set, "1001", plainUser},
		{plainUser, read, "coord", model.NoID}, {plainUser, set, "1002", model.NoID}, {coordUser, read, "1001", model.NoID},
		{operUser, read, "1001", plainUser}, {operUser, read, "root", 0}, {operUser, set, "1001", model.NoID},
		{adminUser, set, "1001", plainUser}, {adminUser, read, "root", 0},
		{adminUser, set, "root", model.NoID}, {adminUser, set, "900", model.NoID}, {adminUser, set, "0", model.NoID},
		{systemUID, set, "1001", plainUser}, {systemUID, set, "root", model.NoID}, {systemUID, set, "slurm", systemUID},
		{0, set, "900", systemUID}, {0, set, "1001", plainUser}, {0, set, "", 0}, {0, set, "nosuch", model.NoID},
		{0, set, "4242", model.NoID},
	} {
		owner, err := c.crontabOf(ctx, c.machine.View(), caller(x.who), x.kind, x.name)
		got := uint32(model.NoID)
		if err == nil {
			got = owner.UID
		}
		if got != x.want {
			t.Errorf("user %d, kind %d, %q: %d, %v, want %d", x.who, x.kind, x.name, got, err, x.want)
		}
		if err == nil && got == plainUser && x.who != plainUser && (owner.User != "ann" || owner.GID != plainUser ||
			len(owner.Groups) != 2 || c.operator(owner)) {
			t.Errorf("the owner of a crontab that user %d sets is %+v", x.who, owner)
		}
	}
}
