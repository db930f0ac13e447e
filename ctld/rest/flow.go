package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"gbatch/internal/proto"
	"gbatch/internal/rpc/share"
)

// flow.go bounds how many bytes of answers and bodies a user moves. What equal requests share costs no more than its
// way out, and so it is not among the rows of QueryRateLimit; but a list of thousands of jobs is a hundred times as long
// as a command's, and copying without end takes the memory from everybody's requests, on whichever CPU it is done.

const (
	flowBytes  = 64 << 20  // a second, for each user
	flowBurstS = 2         // seconds' worth at once
	flowUsers  = 4         // users who may move so much together
	flowLeast  = 128 << 10 // shorter answers and bodies count with the requests
)

func newFlow() *share.Limits {
	return &share.Limits{Total: flowUsers, BurstS: flowBurstS, Refuse: true}
}

// flows waits until a user may move so many more bytes. The monitoring of an administrator, who is root, never waits.
func (s *Server) flows(ctx context.Context, who *proto.Caller, bytes int) error {
	if bytes < flowLeast || who.UID == 0 {
		return nil
	}
	err := s.flow.Pay(ctx, strconv.FormatUint(uint64(who.UID), 10), float64(bytes), flowBytes)
	if errors.Is(err, share.ErrOwes) {
		return &fault{Number: 1801, Text: "Controller is busy", Status: http.StatusTooManyRequests,
			Detail: fmt.Sprintf("a user may move %d MiB a second over HTTP; ask for less at once, compressed "+
				"(Accept-Encoding: gzip), or only for what has changed (If-None-Match)", flowBytes>>20)}
	}
	return err
}
