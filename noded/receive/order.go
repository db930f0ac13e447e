package receive

import (
	"fmt"
	"strconv"
	"strings"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "receive-file"

// Order says which file comes and where it goes.
type Order struct {
	Program string // whose messages the process prints: gbcast
	Node    string
	Path    string // absolute
	Began   int64  // of the transfer, ms since 1970
	Size    int64
	Mode    uint32
	Force   bool  // replace what is there
	Keep    bool  // set the times too
	ATime   int64 // ns since 1970
	MTime   int64
}

// Argv gives the process's arguments.
func (o *Order) Argv(gshim string) []string {
	flags := "-"
	if o.Force {
		flags += "f"
	}
	if o.Keep {
		flags += "p"
	}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return []string{gshim, Word, o.Program, o.Node, o.Path, flags, n(o.Began), n(o.Size), n(int64(o.Mode)), n(o.ATime),
		n(o.MTime)}
}

// parse reads the arguments after Word.
func parse(args []string) (Order, error) {
	if len(args) != 9 {
		return Order{}, fmt.Errorf("%d arguments", len(args))
	}
	o := Order{Program: args[0], Node: args[1], Path: args[2], Force: strings.Contains(args[3], "f"),
		Keep: strings.Contains(args[3], "p")}
	mode := int64(0)
	for i, dst := range []*int64{&o.Began, &o.Size, &mode, &o.ATime, &o.MTime} {
		n, err := strconv.ParseInt(args[4+i], 10, 64)
		if err != nil {
			return Order{}, fmt.Errorf("'%s' is no number", args[4+i])
		}
		*dst = n
	}
	o.Mode = uint32(mode) & 0o777
	return o, nil
}
