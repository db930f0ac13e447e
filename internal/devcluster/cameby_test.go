package devcluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// TestWhatALostHostHasSet: whoever has a login host sets a crontab, a trigger and jobs in a user's name. With the
// host's certificate all of it is stopped; the answer says how much, and the user sees why.
func TestWhatALostHostHasSet(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be another user")
	}
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1,
		Conf: "SlurmctldParameters=allow_user_triggers\nScronParameters=enable"}), t}
	thief := filepath.Join(t.TempDir(), "pki")
	must(t, c.joinAs(c.token(pki.RoleLogin, "lg1", 600), pki.RoleLogin, "lg1", thief))
	conn, err := c.dial(thief, pki.RoleLogin, "lg1", "ctl1")
	must(t, err)
	by := func(kind uint16, rq, reply proto.Message) {
		t.Helper()
		body, err := proto.Encode(rq)
		must(t, err)
		body, err = proto.Encode(&proto.Forward{Caller: proto.Caller{UID: ordinary, GID: ordinary}, Kind: kind, Body: body})
		must(t, err)
		f, err := conn.Call(context.Background(), proto.KindForward, body)
		must(t, err)
		must(t, proto.Decode(f.Body, reply))
	}
	job := func(name string) *proto.SubmitRequest {
		return &proto.SubmitRequest{RequestID: name, Script: []byte("#!/bin/sh\nexec sleep 600\n"),
			Spec: &model.Spec{Name: name, WorkDir: "/", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, LimitS: 600}}
	}
	entry := job("cron")
	entry.RequestID, entry.Spec.Cron = "", &model.Cron{Times: "0 0 1 1 *", First: 1, Last: 1}
	by(proto.KindSetCrontab, &proto.SetCrontabRequest{Text: []byte("0 0 1 1 * true\n"),
		Jobs: []proto.SubmitRequest{*entry}}, &proto.SetCrontabReply{})
	var running, waiting, lied proto.SubmitReply
	by(proto.KindSubmit, job("running"), &running)
	late := job("waiting")
	late.Spec.Begin = 1 << 50
	by(proto.KindSubmit, late, &waiting)
	late.RequestID, late.Spec.Via = "lied", &model.Cert{Serial: "ff", Role: pki.RoleLogin, Name: "another"}
	by(proto.KindSubmit, late, &lied)
	by(proto.KindSetTrigger, &proto.SetTriggerRequest{Of: model.TriggerJob, Job: running.Job, Events: model.OnFini,
		Program: "/bin/true"}, &proto.Empty{})
	cl := c.Client()
	defer cl.Close()
	c.Wait("the job runs", func() error {
		state := model.Pending
		err := cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(body []byte) error {
			var chunk proto.JobsChunk
			err := proto.Decode(body, &chunk)
			for _, j := range chunk.Jobs {
				if j.ID == running.Job {
					state = j.State
				}
			}
			return err
		})
		if err == nil && state != model.Running {
			err = fmt.Errorf("it is %s", state)
		}
		return err
	})

	var r proto.EditCertsReply
	must(t, cl.Call(proto.KindEditCerts, &proto.EditCertsRequest{Revoke: []model.CertRevoked{{Role: pki.RoleLogin,
		Name: "lg1"}}}, &r))
	for _, want := range []string{"1 crontab that came by way of it does", "1 trigger that came by way of it does",
		fmt.Sprintf("2 waiting jobs that came by way of it are held until their users look at them and release them: %d, %d",
			waiting.Job, lied.Job),
		fmt.Sprintf("1 job that came by way of it goes on: cancel it if it is not its user's own: %d", running.Job)} {
		if text := strings.Join(r.Said, "\n"); !strings.Contains(text, want) {
			t.Errorf("the answer lacks %q:\n%s", want, text)
		}
	}
	var cron proto.CrontabReply
	must(t, cl.Call(proto.KindCrontab, &proto.CrontabRequest{User: fmt.Sprint(ordinary)}, &cron))
	if !strings.Contains(cron.Why, "the certificate of login lg1") || len(cron.Off) != 1 {
		t.Errorf("the crontab: %+v", cron)
	}
	var said *rpc.Error
	if _, err := conn.Call(context.Background(), proto.KindPing, nil); err == nil || errors.As(err, &said) {
		t.Errorf("the host is still served: %v", err)
	}
}
