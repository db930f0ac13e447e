package steppmix

import (
	"encoding/hex"
	"fmt"
	"os"

	"gbatch/noded/steprelay"
)

// Word is the first argument that makes gnoded's program run this one.
const Word = "step-pmix"

// Order has the command's address and the tasks.
type Order struct {
	Addr  string // host:port
	Key   []byte
	Node  int32 // this node's place in the step
	Ranks []int32
	Files []*os.File // the process's ends of the connections, as Ranks

	// Virtual says that other nodes of the step may be on this host, where programs would share files by its name.
	Virtual bool
}

// Send writes an order on the socket whose other end is the process's standard input. It does not wait for it.
func Send(sock int, o *Order) error {
	text := fmt.Sprintf("%s %x %d %t\n", o.Addr, o.Key, o.Node, o.Virtual)
	for _, r := range o.Ranks {
		text += fmt.Sprintf("%d\n", r)
	}
	return steprelay.SendLines(sock, text, o.Files)
}

// take reads an order from the socket.
func take(sock int) (*Order, error) {
	lines, err := steprelay.TakeLines(sock)
	if err != nil {
		return nil, err
	}
	o := &Order{}
	var key string
	if _, err := fmt.Sscanf(lines[0], "%s %s %d %t", &o.Addr, &key, &o.Node, &o.Virtual); err != nil {
		return nil, fmt.Errorf("the order %q: %w", lines[0], err)
	}
	if o.Key, err = hex.DecodeString(key); err != nil {
		return nil, err
	}
	if o.Ranks, err = steprelay.Ranks(lines[1:]); err != nil {
		return nil, err
	}
	o.Files, err = steprelay.TakeFiles(sock, len(o.Ranks))
	return o, err
}
