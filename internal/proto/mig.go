package proto

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// MIGRequest divides GPUs of drained nodes, or drained GPUs, into MIG instances. Only operators get an answer.
type MIGRequest struct {
	Nodes  []string
	Gres   string // "gpu:0-3"; "": all GPUs of the nodes
	Layout string // one of MIGLayouts, or profiles: "3g.40gb,1g.10gb"
}

func (x *MIGRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Text(c, &x.Gres, model.MaxText)
	wire.Text(c, &x.Layout, model.MaxText)
}

// MIGReply has a part for each node, in the order of the request.
type MIGReply struct {
	Nodes []MIGNode
}

func (x *MIGReply) Wire(c *wire.C) {
	wire.List(c, &x.Nodes, model.MaxList)
}

// MIGNode is the result for one node's GPUs.
type MIGNode struct {
	Node   string
	Done   MIGDone
	Resume []string // the commands that make them available to jobs again
}

func (x *MIGNode) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Struct(c, &x.Done)
	wire.Texts(c, &x.Resume, model.MaxList, model.MaxName)
}

// MIGAsk is the leader's order to a node. No job has these GPUs.
type MIGAsk struct {
	UUIDs  []string // of GPUs; empty: all GPUs of the driver
	Layout string
}

func (x *MIGAsk) Wire(c *wire.C) {
	wire.Texts(c, &x.UUIDs, model.MaxList, model.MaxName)
	wire.Text(c, &x.Layout, model.MaxText)
}

// MIGDone is a node's result.
type MIGDone struct {
	Error string     // what went wrong, in the tool's words; "": nothing
	GPUs  []MIGState // the GPUs of the order, in their present state
	Gres  string     // Gres of the node's line as it must be now, from gnoded -C; "": the GPUs can't be listed
	Units int32      // GPUs and instances that jobs can get then
	Moved []string   // a sentence for each unit that stays but gets another number
}

func (x *MIGDone) Wire(c *wire.C) {
	wire.Lines(c, &x.Error, model.MaxText)
	wire.List(c, &x.GPUs, model.MaxList)
	wire.Text(c, &x.Gres, model.MaxText)
	wire.Int(c, &x.Units)
	wire.Texts(c, &x.Moved, model.MaxList, model.MaxText)
}

// MIGState is one GPU.
type MIGState struct {
	Index    int32 // the driver's number
	UUID     string
	Type     string
	MemMiB   int64
	MIG      bool     // the mode is on
	Profiles []string // its instances
	Changed  bool
}

func (x *MIGState) Wire(c *wire.C) {
	wire.Int(c, &x.Index)
	wire.Text(c, &x.UUID, model.MaxName)
	wire.Text(c, &x.Type, model.MaxName)
	wire.Int(c, &x.MemMiB)
	wire.Bool(c, &x.MIG)
	wire.Texts(c, &x.Profiles, model.MaxList, model.MaxName)
	wire.Bool(c, &x.Changed)
}

// MaxMIGS is how long a node may take to divide its GPUs, seconds.
const MaxMIGS = 300

// MIGLayouts are the layouts that have a name.
func MIGLayouts() []string { return []string{"training", "inference", "balanced", "off"} }

// maxProfiles is how many instances of one GPU a layout may list.
const maxProfiles = 16

// CheckMIGLayout refuses a text that is neither a layout's name nor a list of profiles. It does not check profiles:
// only the node knows those of its GPUs.
func CheckMIGLayout(layout string) error {
	if slices.Contains(MIGLayouts(), layout) {
		return nil
	}
	items := strings.Split(layout, ",")
	for _, p := range items {
		if !profileForm(p) {
			return fmt.Errorf("layout=%s: %q is neither a layout (%s) nor a MIG profile such as 1g.10gb", layout, p,
				strings.Join(MIGLayouts(), ", "))
		}
	}
	if len(items) > maxProfiles {
		return fmt.Errorf("layout lists %d instances, a GPU has at most %d", len(items), maxProfiles)
	}
	return nil
}

// profileForm reports whether a word has the driver's form of a profile of GPU instances: 1g.10gb, 1g.10gb+me.
func profileForm(p string) bool {
	slices, rest, ok := strings.Cut(p, "g.")
	size, more, ok2 := strings.Cut(rest, "gb")
	digits := func(s string) bool { return s != "" && len(s) <= 4 && strings.Trim(s, "0123456789") == "" }
	return ok && ok2 && digits(slices) && digits(size) &&
		(more == "" || len(more) > 1 && len(more) <= 16 && strings.ContainsRune("+-", rune(more[0])) &&
			strings.Trim(more[1:], "abcdefghijklmnopqrstuvwxyz.") == "")
}
