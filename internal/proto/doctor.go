package proto

import "gbatch/internal/model"

// DoctorRequest has nodes looked at, all where none is named. Operators get an answer.
//
//gbatch:codec
type DoctorRequest struct {
	Nodes []string
}

// DoctorReply has what was found: of the controllers first (Node ""), then of each node.
//
//gbatch:codec
type DoctorReply struct {
	Now   model.Time
	Nodes []NodeFindings
}

// NodeFindings are the findings about one node, in the order in which they were looked for.
//
//gbatch:codec
type NodeFindings struct {
	Node string
	List []Finding
}

// Grade says how a thing is. The numbers are on the wire: append only.
type Grade uint8

// The grades.
const (
	GradeOK   Grade = iota
	GradeNote       // worth knowing, and nothing is wrong
	GradeBad        // jobs suffer from it
)

// Finding is one thing that was looked at.
//
//gbatch:codec
type Finding struct {
	About string // one word
	Grade Grade
	Text  string
	Fix   string // what to do about it; ""
}

// HeldUnits is what an attempt holds of the node that is asked.
//
//gbatch:codec
type HeldUnits struct {
	Attempt Attempt
	Gres    []model.GresAlloc
}
