package server

import (
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// TooOld refuses a local user's request with an id that lay in the socket for longer than proto.OnceAge: its command
// has given up or has its answer, and the controllers may have forgotten the id. Both clocks are this host's.
func TooOld(r *Request) error {
	if r.Kind != proto.KindOnce {
		return nil
	}
	var once proto.Once
	if err := proto.Decode(r.Body, &once); err != nil {
		return rpc.Errorf(proto.CodeBadRequest, "a request with an id is malformed: %v", err)
	}
	if age := time.Since(time.UnixMilli(once.AtMS)); age > proto.OnceAge {
		row := proto.RequestOf(once.Kind)
		return rpc.Errorf(proto.CodeBegun, "%s", row.Unknown("the request is "+age.Round(time.Second).String()+" old"))
	}
	return nil
}
