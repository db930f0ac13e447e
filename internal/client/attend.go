package client

import (
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// Attend ties a job to this process: when the process ends without Leave, the daemon of this host cancels the job. The
// connection then serves only the job; Attended waits for its end.
func (c *Client) Attend(rq *proto.AttendRequest) error {
	body, err := proto.Encode(rq)
	if err != nil {
		return err
	}
	if err := c.dial(); err != nil {
		return err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(AnswerTimeout)); err != nil {
		return err
	}
	if err := c.conn.WriteFrame(proto.KindAttend, 0, 0, body); err != nil {
		return err
	}
	var f rpc.Frame
	if err := c.conn.ReadFrame(&f); err != nil {
		return err
	}
	if f.Kind != proto.KindAttend || f.Flags&rpc.FlagError != 0 {
		return Unreachable("the daemon of this host is of an older version")
	}
	return c.conn.SetReadDeadline(time.Time{})
}

// Attended returns when the daemon has gone.
func (c *Client) Attended() {
	var f rpc.Frame
	_ = c.conn.ReadFrame(&f) // the daemon sends nothing before the end
}

// Leave tells the daemon that the job is no longer needed here.
func (c *Client) Leave() error { return c.conn.WriteFrame(proto.KindAttend, 0, 0, nil) }
