package noded

// stepstate.go is the state table of steps, as attemptstate.go is that of attempts: every phase, every happening, and
// for each phase what ends it. testdata/stepstates.txt shows it for review.
//
//	waiting -> created -> preparing -> started -> (stopping -> killing ->) clearing -> (kept ->) over
//
// A part of a step that another node manages goes the same way; its command is the manager.

// stepPhase is the phase of a step.
type stepPhase uint8

const (
	stepWaiting   stepPhase = iota // it waits for resources of other steps; it has no number
	stepCreated                    // numbered, in the spool; it waits for its command's files
	stepPreparing                  // a worker makes its group and orders
	stepUnmaking                   // the same, and it is to end
	stepRunning                    // gshim has its orders
	stepStopping                   // SIGTERM has been sent; SIGKILL follows after KillWait
	stepKilling                    // SIGKILL has been sent, and is sent again
	stepEnding                     // all tasks have ended; what they left is being cleared away
	stepAbandoned                  // processes survive SIGKILL; the node is drained, and it ends without them
	stepOverHere                   // a part whose end its manager has not stored yet
	numStepPhases
)

var stepPhaseNames = [numStepPhases]string{
	stepWaiting: "waiting", stepCreated: "created", stepPreparing: "preparing", stepUnmaking: "unmaking",
	stepRunning:  "running",
	stepStopping: "stopping", stepKilling: "killing", stepEnding: "ending", stepAbandoned: "abandoned",
	stepOverHere: "over here",
}

func (p stepPhase) String() string { return wordFor(stepPhaseNames[:], "step phase", p) }

// stepHappening is something that happens to a step.
type stepHappening uint8

const (
	sevFiles    stepHappening = iota // its command has sent files for tasks to order here
	sevNoFiles                       // its command has sent files, and no task here waits for them
	sevMade                          // its orders are made
	sevNotMade                       // they could not be made
	sevTask                          // gshim says that a task has begun
	sevTasksEnd                      // all tasks and parts have ended, and all output has been passed on
	sevStop                          // it is to end
	sevKill                          // it is to end at once
	sevCleared                       // nothing of it is left here
	sevLeft                          // something of it is still there
	sevDeadline                      // its phase has taken too long
	sevGiveUp                        // stop waiting for processes that survive SIGKILL
	numStepHappenings
)

var stepHappeningNames = [numStepHappenings]string{
	sevFiles: "files", sevNoFiles: "no files needed", sevMade: "made", sevNotMade: "not made", sevTask: "task began",
	sevTasksEnd: "tasks ended", sevStop: "stop", sevKill: "kill", sevCleared: "cleared", sevLeft: "not cleared",
	sevDeadline: "deadline", sevGiveUp: "give up",
}

func (e stepHappening) String() string { return wordFor(stepHappeningNames[:], "step happening", e) }

// stepAct is an action of the table. loop.actStep has the code.
type stepAct uint8

const (
	stepMissing    stepAct = iota // the table has a hole: a test fails
	stepNothing                   // it changes nothing here
	stepMake                      // a worker makes its group and orders
	stepCloseFiles                // the files are not needed
	stepOrder                     // order gshim to start its tasks
	stepDiscard                   // drop the orders; tasks that were not ordered have not run
	stepRefuse                    // tell the command why; tasks that were not ordered have not run
	stepTerm                      // tasks that were not ordered have not run; SIGTERM to the others and to the parts
	stepKill                      // the same with SIGKILL
	stepNoFiles                   // tell the command that its files did not come; as stepTerm
	stepClear                     // clear away what its tasks left
	stepAgain                     // try that again a little later
	stepGiveUp                    // drain the node and name the surviving processes, end its tasks, try once more
	stepReport                    // report its end, or tell its manager
	numStepActs
)

var stepActNames = [numStepActs]string{
	stepNothing: "-", stepMake: "make group and orders", stepCloseFiles: "close the files", stepOrder: "order tasks",
	stepDiscard: "drop orders, end unstarted tasks", stepRefuse: "tell the command, end unstarted tasks",
	stepTerm: "end unstarted tasks, SIGTERM", stepKill: "end unstarted tasks, SIGKILL",
	stepNoFiles: "tell the command, end unstarted tasks", stepClear: "clear", stepAgain: "clear again later",
	stepGiveUp: "drain node, end tasks, clear once", stepReport: "report end",
}

func (a stepAct) String() string { return wordFor(stepActNames[:], "step act", a) }

type stepCell = cell[stepPhase, stepAct]

// stepTable is the table. Rows are phases, columns happenings.
var stepTable = [numStepPhases][numStepHappenings]stepCell{
	stepWaiting: {
		sevFiles: {stepWaiting, stepCloseFiles}, sevNoFiles: {stepWaiting, stepNothing},
		sevMade: {stepWaiting, stepNothing}, sevNotMade: {stepWaiting, stepNothing},
		sevTask: {stepWaiting, stepNothing}, sevTasksEnd: {stepWaiting, stepNothing},
		sevStop: {stepWaiting, stepNothing}, sevKill: {stepWaiting, stepNothing},
		sevCleared: {stepWaiting, stepNothing}, sevLeft: {stepWaiting, stepNothing},
		sevDeadline: {stepWaiting, stepNothing}, sevGiveUp: {stepWaiting, stepNothing},
	},
	stepCreated: {
		sevFiles: {stepPreparing, stepMake}, sevNoFiles: {stepRunning, stepNothing},
		sevMade: {stepCreated, stepNothing}, sevNotMade: {stepCreated, stepNothing},
		sevTask: {stepRunning, stepNothing}, sevTasksEnd: {stepEnding, stepClear},
		sevStop: {stepStopping, stepTerm}, sevKill: {stepKilling, stepKill},
		sevCleared: {stepCreated, stepNothing}, sevLeft: {stepCreated, stepNothing},
		sevDeadline: {stepStopping, stepNoFiles}, sevGiveUp: {stepStopping, stepNoFiles},
	},
	stepPreparing: {
		sevFiles: {stepPreparing, stepCloseFiles}, sevNoFiles: {stepPreparing, stepNothing},
		sevMade: {stepRunning, stepOrder}, sevNotMade: {stepStopping, stepRefuse},
		sevTask: {stepPreparing, stepNothing}, sevTasksEnd: {stepPreparing, stepNothing},
		sevStop: {stepUnmaking, stepNothing}, sevKill: {stepUnmaking, stepNothing},
		sevCleared: {stepPreparing, stepNothing}, sevLeft: {stepPreparing, stepNothing},
		sevDeadline: {stepStopping, stepRefuse}, sevGiveUp: {stepStopping, stepRefuse},
	},
	stepUnmaking: {
		sevFiles: {stepUnmaking, stepCloseFiles}, sevNoFiles: {stepUnmaking, stepNothing},
		sevMade: {stepStopping, stepDiscard}, sevNotMade: {stepStopping, stepRefuse},
		sevTask: {stepUnmaking, stepNothing}, sevTasksEnd: {stepUnmaking, stepNothing},
		sevStop: {stepUnmaking, stepNothing}, sevKill: {stepUnmaking, stepNothing},
		sevCleared: {stepUnmaking, stepNothing}, sevLeft: {stepUnmaking, stepNothing},
		sevDeadline: {stepStopping, stepRefuse}, sevGiveUp: {stepStopping, stepRefuse},
	},
	stepRunning: {
		sevFiles: {stepPreparing, stepMake}, sevNoFiles: {stepRunning, stepNothing},
		sevMade: {stepRunning, stepNothing}, sevNotMade: {stepRunning, stepNothing},
		sevTask: {stepRunning, stepNothing}, sevTasksEnd: {stepEnding, stepClear},
		sevStop: {stepStopping, stepTerm}, sevKill: {stepKilling, stepKill},
		sevCleared: {stepRunning, stepNothing}, sevLeft: {stepRunning, stepNothing},
		sevDeadline: {stepRunning, stepNothing}, sevGiveUp: {stepRunning, stepNothing},
	},
	stepStopping: {
		sevFiles: {stepStopping, stepCloseFiles}, sevNoFiles: {stepStopping, stepNothing},
		sevMade: {stepStopping, stepDiscard}, sevNotMade: {stepStopping, stepNothing},
		sevTask: {stepKilling, stepKill}, sevTasksEnd: {stepEnding, stepClear},
		sevStop: {stepStopping, stepNothing}, sevKill: {stepKilling, stepKill},
		sevCleared: {stepStopping, stepNothing}, sevLeft: {stepStopping, stepNothing},
		sevDeadline: {stepKilling, stepKill}, sevGiveUp: {stepKilling, stepKill},
	},
	stepKilling: {
		sevFiles: {stepKilling, stepCloseFiles}, sevNoFiles: {stepKilling, stepNothing},
		sevMade: {stepKilling, stepDiscard}, sevNotMade: {stepKilling, stepNothing},
		sevTask: {stepKilling, stepKill}, sevTasksEnd: {stepEnding, stepClear},
		sevStop: {stepKilling, stepNothing}, sevKill: {stepKilling, stepKill},
		sevCleared: {stepKilling, stepNothing}, sevLeft: {stepKilling, stepNothing},
		sevDeadline: {stepKilling, stepKill}, sevGiveUp: {stepAbandoned, stepGiveUp},
	},
	stepEnding: {
		sevFiles: {stepEnding, stepCloseFiles}, sevNoFiles: {stepEnding, stepNothing},
		sevMade: {stepEnding, stepDiscard}, sevNotMade: {stepEnding, stepNothing},
		sevTask: {stepEnding, stepNothing}, sevTasksEnd: {stepEnding, stepNothing},
		sevStop: {stepEnding, stepNothing}, sevKill: {stepEnding, stepNothing},
		sevCleared: {stepOverHere, stepReport}, sevLeft: {stepEnding, stepAgain},
		sevDeadline: {stepEnding, stepClear}, sevGiveUp: {stepAbandoned, stepGiveUp},
	},
	stepAbandoned: {
		sevFiles: {stepAbandoned, stepCloseFiles}, sevNoFiles: {stepAbandoned, stepNothing},
		sevMade: {stepAbandoned, stepDiscard}, sevNotMade: {stepAbandoned, stepNothing},
		sevTask: {stepAbandoned, stepNothing}, sevTasksEnd: {stepAbandoned, stepNothing},
		sevStop: {stepAbandoned, stepNothing}, sevKill: {stepAbandoned, stepNothing},
		sevCleared: {stepOverHere, stepReport}, sevLeft: {stepOverHere, stepReport},
		sevDeadline: {stepOverHere, stepReport}, sevGiveUp: {stepOverHere, stepReport},
	},
	stepOverHere: {
		sevFiles: {stepOverHere, stepCloseFiles}, sevNoFiles: {stepOverHere, stepNothing},
		sevMade: {stepOverHere, stepDiscard}, sevNotMade: {stepOverHere, stepNothing},
		sevTask: {stepOverHere, stepNothing}, sevTasksEnd: {stepOverHere, stepNothing},
		sevStop: {stepOverHere, stepNothing}, sevKill: {stepOverHere, stepNothing},
		sevCleared: {stepOverHere, stepNothing}, sevLeft: {stepOverHere, stepNothing},
		sevDeadline: {stepOverHere, stepNothing}, sevGiveUp: {stepOverHere, stepNothing},
	},
}

// stepPatience says for each phase of a step how long it may last, or who ends it.
var stepPatience = [numStepPhases]string{
	stepWaiting:   "its command goes, or its job ends",
	stepCreated:   "filesWait for a command that is connected, lonelyStep for one that is not; then it is stopped",
	stepPreparing: "makeWait, imageWait with a container, then it is refused",
	stepUnmaking:  "UnkillableStepTimeout, then it is stopped",
	stepRunning:   "its time limit, its command, or its job",
	stepStopping:  "KillWait, then it is killed",
	stepKilling:   "SIGKILL every killAgain; UnkillableStepTimeout, then it is abandoned",
	stepEnding:    "it is cleared again and again; UnkillableStepTimeout, then it is abandoned",
	stepAbandoned: "abandonWait, then it ends without what is left",
	stepOverHere:  "its manager takes note of it, or its job ends",
}
