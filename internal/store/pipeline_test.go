package store

import (
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestPipelineThatNobodyReads: raft does not read the answers of a follower that has refused an entry any more. The
// sender, which waits for room in the pipeline then, gets an error.
func TestPipelineThatNobodyReads(t *testing.T) {
	var ends [2]*raft.NetworkTransport
	for i := range ends {
		tr, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, transportTimeout, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}()
		ends[i] = tr
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the follower refuses everything
		for {
			select {
			case rpc := <-ends[1].Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			case <-stop:
				return
			}
		}
	}()
	trans := &mutedTransport{ends[0], newWrites(nil)}
	p, err := trans.AppendEntriesPipeline("b", ends[1].LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{}, new(raft.AppendEntriesResponse)); err != nil {
				failed <- err
				return
			}
		}
	}()
	if resp := (<-p.Consumer()).Response(); resp.Success {
		t.Error("the follower has taken it")
	}
	// raft reads no more.
	select {
	case <-failed:
	case <-time.After(5 * sendLimit):
		t.Error("the sender waits for ever")
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		<-failed
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
