package proto

import (
	"fmt"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Message is any struct of this package that is sent in a frame.
type Message = wire.Coder

// Encode gives a message's bytes.
func Encode(m Message) ([]byte, error) { return Append(nil, m) }

// Append adds a message's bytes to buf, which a sender may use again.
func Append(buf []byte, m Message) ([]byte, error) {
	out, err := wire.AppendMessage(buf, m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return out, nil
}

// Decode reads a message. Malformed bytes give an error, and take no more memory than package wire allows.
func Decode(body []byte, m Message) error { return DecodeWith(body, m, wire.AsIs) }

// DecodeWith is Decode with care for texts that could harm those who see them.
func DecodeWith(body []byte, m Message, care wire.Care) error {
	if err := wire.ReadMessageWith(body, m, care); err != nil {
		return fmt.Errorf("decode %T: %w", m, err)
	}
	return nil
}

// Limits on what one message may hold.
const (
	MaxSpecBytes  = 256 << 10 // a job's description as it is stored, without its script and environment
	MaxTargets    = 10000     // job ids named in one command
	MaxEnvBytes   = 4 << 20   // environment of a submission
	MaxFieldBytes = 4096      // a name, a path, a comment
	ChunkJobs     = 512       // jobs, nodes or records in one frame of a streamed answer
	ChunkBytes    = 1 << 20   // bytes of such a frame, beyond which it is halved
	MaxEachJobs   = 512       // jobs of one SubmitEachRequest
)

const (
	maxSpecRead = 2 * MaxSpecBytes                // read, so that a person is told of what is over the limit
	maxRestRead = model.MaxHet * MaxSpecBytes / 4 // components of a heterogeneous job
	maxEachRead = 4 << 20                         // arguments of a SubmitEachRequest
)

// Limits on the bytes of a request: Request.MaxBytes.
const (
	plainRequest = 1 << 20  // without a limit of its own
	waitRequest  = 64 << 10 // one that waits by design
	largeRequest = 16 << 20
	wrapperBytes = 512 << 10 // of a request that holds another one, beside it: a caller may have 65,536 groups
)
