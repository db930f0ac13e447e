package devcluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestControllersLoseTheirDisks: a controller that has lost its disk gets everything from the others and counts again.
// Two of three that have lost theirs, and start first, don't begin an empty cluster: with the third, all jobs are
// there.
func TestControllersLoseTheirDisks(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Controllers: 3, Nodes: 1, NoDbd: true})
	var names []string
	for _, daemon := range c.Controllers() {
		names = append(names, strings.TrimPrefix(daemon, "ctld-"))
	}
	last := model.JobID(0)
	submit := func() error {
		cl := c.Client()
		defer cl.Close()
		rq := &proto.SubmitRequest{RequestID: fmt.Sprint("r", last+1), Script: []byte("#!/bin/sh\n"),
			Spec: &model.Spec{Name: "a", WorkDir: c.Dir, Begin: model.Time(time.Now().Add(24 * time.Hour).UnixMilli())}}
		var reply proto.SubmitReply
		if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
			return err
		}
		if reply.Job != last+1 {
			t.Fatalf("job %d after job %d", reply.Job, last)
		}
		last = reply.Job
		return nil
	}
	const jobs = 500
	for range jobs {
		c.Wait("a submission", submit)
	}
	wipe := func(name string) {
		if err := os.RemoveAll(filepath.Join(c.Dir, "state", name)); err != nil {
			t.Fatal(err)
		}
	}

	// One of them.
	c.StopDaemon("ctld-" + names[0])
	wipe(names[0])
	c.StartDaemon("ctld-" + names[0])
	c.Wait("a submission", submit)
	joined := func(name string) {
		c.Wait(name+" to have everything", func() error {
			if c.Joining(name) {
				return fmt.Errorf("not yet")
			}
			return nil
		})
	}
	joined(names[0])
	c.StopDaemon("ctld-" + names[1])
	c.Wait("a submission with the one that lost its disk", submit)
	c.StartDaemon("ctld-" + names[1])
	c.Wait("a submission", submit)

	// Two of three.
	for _, name := range names {
		c.StopDaemon("ctld-" + name)
	}
	for _, name := range names[:2] {
		wipe(name)
		c.StartDaemon("ctld-" + name)
	}
	if !c.Joining(names[0]) || !c.Joining(names[1]) {
		t.Fatal("a controller without state votes")
	}
	c.StartDaemon("ctld-" + names[2])
	c.Wait("a submission after two disks were lost", submit)
	for _, name := range names {
		joined(name)
	}
	if last < jobs+4 {
		t.Errorf("the last job is %d", last)
	}
}
