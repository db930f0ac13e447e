package ctld

import (
	"bufio"
	"context"

	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// dump sends an operator the whole present state. Submissions and planning go on meanwhile, because it writes frozen
// facts.
func (c *Controller) dump(ctx context.Context, who *proto.Caller, _ *proto.Empty, send stream) error {
	if !c.operator(who) {
		return refuse(proto.CodeAccess, "only operators may dump the state: it holds everybody's scripts and environments")
	}
	c.log.Info("the state was dumped", "uid", who.UID)
	w := bufio.NewWriterSize(chunks{ctx, send}, proto.DumpChunkBytes)
	if err := state.WriteDump(w, c.now(), c.machine.Freeze()); err != nil {
		return err
	}
	return w.Flush()
}

// chunks is a writer that sends everything that is written to it.
type chunks struct {
	ctx  context.Context
	send stream
}

// Write sends p in one chunk, or in several if it is too large.
func (c chunks) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := c.ctx.Err(); err != nil {
			return n, err
		}
		part := p[n:min(len(p), n+proto.DumpChunkBytes)]
		if err := c.send(&proto.DumpChunk{Data: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}
