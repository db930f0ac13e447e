package store

import (
	"time"

	"github.com/hashicorp/raft"
)

// pipeline.go bounds the wait for a follower's pipeline. raft stops reading its answers when the follower refuses an
// entry, because its disk is full, or knows a newer term. The sender may wait at that moment for room among the
// requests in flight, and nothing makes room any more: the follower gets no further entries, and this voter can't be
// shut down. So a pipeline that does not take a request within sendLimit is closed; raft goes on without one, and makes
// another when the follower answers again.

const sendLimit = 2 * time.Second // longer than a follower's slow flush

// boundedPipeline is a pipeline whose sender never waits for ever.
type boundedPipeline struct{ raft.AppendPipeline }

func (p *boundedPipeline) AppendEntries(rq *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	late := time.AfterFunc(sendLimit, func() { _ = p.Close() }) // it was given up
	defer late.Stop()
	return p.AppendPipeline.AppendEntries(rq, resp)
}
