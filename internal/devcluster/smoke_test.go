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
		err := cl.Stream(proto.KindAcct, &proto.AcctRequest{Jobs: []proto.JobRef{{Job: reply.Job, Task: model.NoTask}}},
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
