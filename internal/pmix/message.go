package pmix

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gbatch/internal/model"
	"gbatch/internal/stepio"
	"gbatch/internal/wire"
)

// Bounds.
const (
	MaxSpace  = 64 << 20 // the data of one fence, and what the hub holds of all fences, bytes
	MaxAnswer = 16 << 20 // one task's data, bytes
	MaxAsked  = 4096     // questions of one server that are not answered
	MaxFences = 1024     // fences that have not ended
	MaxText   = 1024     // a sentence, bytes

	maxRanks   = 1 << 20
	maxNodes   = 1 << 17
	maxMessage = MaxSpace + 16<<20
)

// stream is the stream of all messages between a server and the hub.
const stream uint8 = 20

// Kind says what a message is about.
type Kind uint8

// The kinds of messages.
const (
	Hello     Kind = 1 + iota // to the hub, first: Ranks are served here
	Start                     // to the server, its answer: Plan, and its own place there as Rank
	Fence                     // to the hub: the tasks here are in the fence of Ranks (none: all tasks) with Data
	FenceEnd                  // to the server: all are; the Data of all
	Ask                       // both ways: the data of the task Rank is wanted; ID is the asking side's
	Answer                    // both ways: Status, and Data if that is 0
	Connected                 // to the hub: the task Rank has called MPI_Init
	Finalized                 // to the hub: it has called MPI_Finalize
	Ended                     // to the server: the task has ended, as its node says
	Gone                      // to the hub: the task has ended, and no more will come from it
	Abort                     // to the hub: the task ends the step, with Status and Text
	Note                      // to the hub: Text for the user, about the task
	Fail                      // to the hub: the server can't serve, Text says why
)

// Message is one message.
type Message struct {
	Kind   Kind
	ID     uint64
	Rank   int32
	Status int32 // PMIx's own
	Ranks  []int32
	Data   []byte
	Text   string
	Plan   *Plan
}

// Wire lists the fields.
func (x *Message) Wire(c *wire.C) {
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Rank)
	wire.Int(c, &x.Status)
	wire.Ints(c, &x.Ranks, maxRanks)
	wire.Bytes(c, &x.Data, MaxSpace)
	wire.Data(c, &x.Text, MaxText)
	wire.Ptr(c, &x.Plan)
}

// Plan is what servers are told of the step.
type Plan struct {
	Space string // the name of the tasks' namespace: it can't be guessed, and keeps strangers on the node out
	Job   string // the step's number
	Nodes []Node
}

// Wire lists the fields.
func (x *Plan) Wire(c *wire.C) {
	wire.Text(c, &x.Space, model.MaxName)
	wire.Text(c, &x.Job, model.MaxName)
	wire.List(c, &x.Nodes, maxNodes)
}

// Node is the tasks that one server serves.
type Node struct {
	Name  string
	App   int32 // which of several commands they belong to
	Ranks []int32
}

// Wire lists the fields.
func (x *Node) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.App)
	wire.Ints(c, &x.Ranks, maxRanks)
}

// Size is the number of tasks.
func (x *Plan) Size() int {
	n := 0
	for i := range x.Nodes {
		n += len(x.Nodes[i].Ranks)
	}
	return n
}

// Conn is the connection between a node's server and the hub.
type Conn interface {
	Read() (stepio.Frame, error)
	Write(stream uint8, rank int32, data []byte) error
}

// errStranger is an end that speaks something else, as an older version.
var errStranger = errors.New("it speaks another protocol")

// Send writes a message.
func Send(c Conn, m *Message) error {
	b, err := wire.Append(make([]byte, 4), m)
	if err != nil {
		return err
	}
	if len(b)-4 > maxMessage {
		return fmt.Errorf("a message of %d bytes", len(b)-4)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return c.Write(stream, stepio.AllRanks, b) // in one piece, whoever else writes
}

// Receive reads a message.
func Receive(c Conn) (*Message, error) {
	var b []byte
	want := -1
	for want < 0 || len(b) < want {
		f, err := c.Read()
		if err != nil {
			return nil, err
		}
		if f.Stream != stream {
			return nil, errStranger
		}
		b = append(b, f.Data...)
		if want < 0 {
			if len(b) < 4 {
				return nil, errStranger
			}
			n := binary.LittleEndian.Uint32(b)
			if n > maxMessage {
				return nil, fmt.Errorf("a message of %d bytes", n)
			}
			want, b = int(n), b[4:]
		}
	}
	if len(b) > want {
		return nil, errStranger
	}
	m := &Message{}
	return m, wire.Unmarshal(b, m)
}
