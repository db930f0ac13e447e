package oci

import (
	"encoding/json"
	"fmt"

	"gbatch/internal/model/container"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "run-bundle"

// CarrierName is the process's own name: gshim's signals for all processes go past it (shim.CarrierName).
const CarrierName = "gshim-carrier"

// MaxOrder bounds an order's text: an argument of a program has at most 128 KiB.
const MaxOrder = 120 << 10

// Order says what a task runs in.
type Order struct {
	Runtime container.Runtime
	Bundle  string // a bundle's directory, or what the runtime takes for one
	Spool   string // the step's directory, of the job's user
	ID      string // the container's name for the runtime; "": made of the ids
	Job     uint32
	Step    string // as in %s
	Task    uint32 // its rank in the step
	Node    string
	User    string
	UID     uint32
	GID     uint32
	Again   bool   // an earlier attempt may have left a container of the same name
	Home    string // mounted at its own path; "": it isn't

	Files   []File   // that are shown
	Devices []string // device files of the job
	Libs    []File   // of the GPU's driver: names in their directory
	Tools   []File

	Mounts   []Mount
	WorkDir  string   // "": the bundle's
	Keep     []string // variables that come before the bundle's
	ReadOnly bool
	Root     container.Choice // the user is root in the container; Unset: as the bundle is made
	Terminal bool
	Extra    bool // there is a descriptor 3 for the task
}

// File is a file of the node, and its name in the container.
type File struct{ From, At string }

// Mount is a directory or file of the node that is seen in the container; From "tmpfs" is memory.
type Mount struct {
	From, At string
	ReadOnly bool `json:",omitempty"`
	NoExec   bool `json:",omitempty"`
	Flat     bool `json:",omitempty"`
}

// Argv gives the arguments of the process that runs a task's command in the container.
func (o *Order) Argv(gshim string, command []string) ([]string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if len(text) > MaxOrder {
		return nil, fmt.Errorf("what is asked of the container has %d bytes, at most %d can be passed on: give fewer "+
			"mounts, or shorter paths", len(text), MaxOrder)
	}
	return append([]string{gshim, Word, string(text)}, command...), nil
}

func parse(args []string) (*Order, []string, error) {
	if len(args) < 2 {
		return nil, nil, fmt.Errorf("%d arguments", len(args))
	}
	o := &Order{}
	if err := json.Unmarshal([]byte(args[0]), o); err != nil {
		return nil, nil, err
	}
	return o, args[1:], nil
}
