package ctld

import (
	"errors"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// validNeeds checks what a job asks for, as the commands did before they sent it, and what its texts may be.
func validNeeds(sp *model.Spec) error {
	m := sp.Extra()
	if len(m.Prefer) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "--prefer is %d bytes long, the limit is %d", len(m.Prefer), proto.MaxFieldBytes)
	}
	if b := m.Bind; b != nil &&
		max(len(b.GPU), len(b.CPU), len(b.Mem), len(b.Dist), len(b.Hint)) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "--gpu-bind, --cpu-bind, --mem-bind or --distribution is longer than %d bytes",
			proto.MaxFieldBytes)
	}
	return refusedAsk(ask.Check(sp))
}

// askCodes are the codes of what package ask refuses.
var askCodes = map[ask.About]proto.Code{ask.Request: proto.CodeBadRequest, ask.Gres: proto.CodeInvalidGres,
	ask.License: proto.CodeBadRequest, ask.Feature: proto.CodeFeature, ask.Nodes: proto.CodeNodeCount,
	ask.Time: proto.CodeTimeLimit, ask.Moment: proto.CodeTimeValue}

// refusedAsk gives a refusal of package ask its code. The sentence is the one that commands say.
func refusedAsk(err error) error {
	var no *ask.Error
	if errors.As(err, &no) {
		return rpc.Errorf(askCodes[no.About], "%s", no.Error())
	}
	return err
}
