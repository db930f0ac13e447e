package run

import (
	"net"
	"path/filepath"
	"testing"

	"gbatch/internal/client"
	"gbatch/internal/proto"
)

// TestFilesToADaemonThatHasGone: a daemon that ends between saying that a step was created and taking its files is
// looked for again, and no reason to give the step up.
func TestFilesToADaemonThatHasGone(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, proto.StepSocket("n1")))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() //nolint:errcheck // the test is over
	c, err := client.DialSteps(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free()
	daemon, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Close(); err != nil {
		t.Fatal(err)
	}
	if c.Send(proto.StepFrameFiles, &proto.StepFiles{}, nil) == nil {
		t.Fatal("a message to nobody was sent")
	}
	w := &talk{conn: c, pl: &plumbing{}}
	if err := w.sendFiles(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(); err == nil {
		t.Error("the reader sees nothing")
	}
}
