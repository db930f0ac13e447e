package ask

import "fmt"

// About is what a refusal is about. The controller has a code for each.
type About uint8

// The subjects of refusals.
const (
	Request About = iota // how the parts of the request go together
	Gres
	License
	Feature
	Nodes
	Time   // how long
	Moment // when
	numAbout
)

// words are what a refusal begins with: Slurm's, where it has some.
var words = [numAbout]string{Gres: "Invalid generic resource (gres) specification: ",
	License: "Invalid license specification: ", Feature: "Invalid feature specification: ",
	Nodes:  "Invalid node count specification: ",
	Time:   "Requested time limit is invalid (missing or exceeds some limit): ",
	Moment: "Invalid time specified: "}

// Error refuses a request. Commands and the controller say the same sentence.
type Error struct {
	About About
	Text  string
}

func (e *Error) Error() string { return words[e.About] + e.Text }

func refuse(about About, format string, a ...any) error {
	return &Error{about, fmt.Sprintf(format, a...)}
}
