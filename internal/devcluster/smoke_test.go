package devcluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestJob follows one job: submitted, scheduled, launched, ended, accounted.
func TestJob(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Gres: "gpu:a100:4"})
	cl := c.Client()
	defer cl.Close()
	out := filepath.Join(c.Dir, "out")
	rq := &proto.SubmitRequest{RequestID: "r1",
		Script: []byte("#!/bin/sh\necho $CUDA_VISIBLE_DEVICES $SLURM_JOB_ID\nexit 3\n"),
		Env:    []byte("PATH=/bin:/usr/bin\x00"), Spec: &model.Spec{Name: "a", WorkDir: c.Dir, StdOut: out, Umask: 0o22,
			Gres: []model.GresReq{{Name: "gpu", Count: 2}}}}
	var reply proto.SubmitReply
	if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
		t.Fatal(err)
	}
	var w proto.WaitReply
	if err := cl.Call(proto.KindWait, &proto.WaitRequest{Job: reply.Job}, &w); err != nil {
		t.Fatal(err)
	}
	if !w.Done || w.Code != 3 || w.State != model.Failed {
		t.Errorf("the job ended as %+v", w)
	}
	data, err := os.ReadFile(out)
	if want := fmt.Sprintf("0,1 %d\n", reply.Job); err != nil || string(data) != want {
		t.Errorf("output %q (%v), want %q", data, err, want)
	}
	c.Wait("the accounting record", func() error {
		n := 0
		err := cl.Stream(proto.KindAcct, &proto.AcctRequest{Jobs: []model.JobRef{{Job: reply.Job, Task: model.NoTask}}},
			func(body []byte) error {
				var chunk proto.RecordsChunk
				if err := proto.Decode(body, &chunk); err != nil {
					return err
				}
				for _, r := range chunk.Records {
					if r.State == model.Failed && r.Exit.Code == 3 {
						n++
					}
				}
				return nil
			})
		if err == nil && n != 1 {
			err = fmt.Errorf("%d records", n)
		}
		return err
	})
}

// TestStepThatHasJustEnded: between accounting, which may not have had a step's end when it was asked, and its node,
// which is asked after that, no step of a running job is lost: the node names those too that have just ended.
func TestStepThatHasJustEnded(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{})
	cl := c.Client()
	defer cl.Close()
	rq := &proto.SubmitRequest{RequestID: "r1", Script: []byte("#!/bin/sh\ngrun sh -c 'exit 3'\ntouch over\nsleep 600\n"),
		Env:  fmt.Appendf(nil, "PATH=%s:/bin:/usr/bin\x00GBATCH_CONF=%s\x00", devcluster.Commands(t), c.Conf),
		Spec: &model.Spec{Name: "a", WorkDir: c.Dir, StdOut: filepath.Join(c.Dir, "out"), Umask: 0o22}}
	var reply proto.SubmitReply
	if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
		t.Fatal(err)
	}
	c.Wait("the step's end", func() error {
		_, err := os.Stat(filepath.Join(c.Dir, "over"))
		return err
	})
	for _, ended := range []bool{false, true} {
		var got []model.Step
		if err := cl.Stream(proto.KindSteps, &proto.StepsRequest{Ended: ended}, func(body []byte) error {
			var chunk proto.StepsChunk
			err := proto.Decode(body, &chunk)
			for i := range chunk.Steps {
				if s := chunk.Steps[i].Step; s.ID == 0 {
					got = append(got, s)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if has := len(got) == 1 && got[0].End != 0 && got[0].Exit.Code == 3; has != ended {
			t.Errorf("asked for steps that have ended: %v; step 0 is %+v", ended, got)
		}
	}
}
