package noded

// partstate.go is the state table of parts, as stepstate.go is that of steps: the manager's view of a step's part on
// each other node. testdata/partstates.txt shows it for review.
//
//	idle -> calling -> asked -> talking -> over, and over away back to calling as long as the node can't be reached

// partPhase is the phase of a part.
type partPhase uint8

const (
	partIdle    partPhase = iota // not asked for yet: its step has not begun, or its command is away
	partCalling                  // a connection is being made
	partAsked                    // the node is connected and has been asked, and has not answered
	partTalking                  // it has answered
	partAway                     // it can't be reached, or isn't ready; it is asked again
	partOver                     // nothing is left of it, or it was given up
	numPartPhases
)

var partPhaseWords = [numPartPhases]string{
	partIdle: "idle", partCalling: "calling", partAsked: "asked", partTalking: "talking", partAway: "away",
	partOver: "over",
}

func (p partPhase) String() string { return wordFor(partPhaseWords[:], "part phase", p) }

// partHappening is something that happens to a part.
type partHappening uint8

const (
	pevAsk      partHappening = iota // it is to run, or its command is back
	pevRetry                         // it is time to ask again
	pevUp                            // a connection is made, and the request is sent
	pevReady                         // the node has it, and waits for its files
	pevTask                          // the node tells of a task
	pevDone                          // the node says that it has ended
	pevUnknown                       // the node doesn't know it, and can be asked to begin it
	pevOrphan                        // the node doesn't know it, and its command is away
	pevUnbegun                       // the node doesn't know it, and it is to end
	pevNotReady                      // the node isn't ready for it yet
	pevRefused                       // the node won't take it
	pevLost                          // its connection has ended, or could not be made
	pevGiveUp                        // the node has been out of reach for too long, or the step is given up
	pevEnd                           // it is to end
	pevTold                          // the command knows from the node's relay how all its tasks have ended
	numPartHappenings
)

var partHappeningWords = [numPartHappenings]string{
	pevAsk: "ask", pevRetry: "retry", pevUp: "connected", pevReady: "ready", pevTask: "task", pevDone: "done",
	pevUnknown: "unknown there", pevOrphan: "without command", pevUnbegun: "not begun", pevNotReady: "not ready",
	pevRefused: "refused", pevLost: "lost", pevGiveUp: "give up", pevEnd: "end",
	pevTold: "told by command",
}

func (e partHappening) String() string { return wordFor(partHappeningWords[:], "part happening", e) }

// partAct is what is done. loop.actPart has the code.
type partAct uint8

const (
	partMissing partAct = iota // the table has a hole: a test fails
	partNothing                // it changes nothing here
	partDial                   // connect to the node and ask
	partGreet                  // keep the connection, and say if it is to end
	partHangUp                 // close the connection
	partFiles                  // give the node the files of its tasks
	partTell                   // tell the command of the task
	partEnds                   // take note of its end
	partRedial                 // close the connection, connect anew and ask
	partWait                   // ask again a little later, unless it has taken too long
	partFails                  // its tasks have failed, and the step ends
	partSayEnd                 // tell the node to end it
	numPartActs
)

var partActWords = [numPartActs]string{
	partNothing: "-", partDial: "connect and ask", partGreet: "keep connection, say if it is to end",
	partHangUp: "hang up", partFiles: "give files", partTell: "tell command", partEnds: "take note",
	partRedial: "hang up, connect and ask", partWait: "hang up, ask again later",
	partFails: "fail its tasks, end the step", partSayEnd: "tell node to end it",
}

func (a partAct) String() string { return wordFor(partActWords[:], "part act", a) }

type partCell = cell[partPhase, partAct]

// partTable is the table. Rows are phases, columns happenings. Messages of a connection that is no longer the part's
// are dropped before: so a part without a connection only gets a new connection.
var partTable = [numPartPhases][numPartHappenings]partCell{
	partIdle: {
		pevAsk: {partCalling, partDial}, pevRetry: {partIdle, partNothing}, pevUp: {partIdle, partHangUp},
		pevReady: {partIdle, partNothing}, pevTask: {partIdle, partNothing}, pevDone: {partIdle, partNothing},
		pevUnknown: {partIdle, partNothing}, pevOrphan: {partIdle, partNothing}, pevUnbegun: {partIdle, partNothing},
		pevNotReady: {partIdle, partNothing}, pevRefused: {partIdle, partNothing}, pevLost: {partIdle, partNothing},
		pevGiveUp: {partOver, partFails}, pevEnd: {partCalling, partDial},
		pevTold: {partIdle, partNothing},
	},
	partCalling: {
		pevAsk: {partCalling, partNothing}, pevRetry: {partCalling, partNothing}, pevUp: {partAsked, partGreet},
		pevReady: {partCalling, partNothing}, pevTask: {partCalling, partNothing}, pevDone: {partCalling, partNothing},
		pevUnknown: {partCalling, partNothing}, pevOrphan: {partCalling, partNothing},
		pevUnbegun: {partCalling, partNothing}, pevNotReady: {partCalling, partNothing},
		pevRefused: {partCalling, partNothing}, pevLost: {partAway, partWait},
		pevGiveUp: {partOver, partFails}, pevEnd: {partCalling, partNothing},
		pevTold: {partOver, partHangUp},
	},
	partAsked: {
		pevAsk: {partAsked, partNothing}, pevRetry: {partAsked, partNothing}, pevUp: {partAsked, partHangUp},
		pevReady: {partTalking, partFiles}, pevTask: {partTalking, partTell}, pevDone: {partOver, partEnds},
		pevUnknown: {partCalling, partRedial}, pevOrphan: {partIdle, partHangUp}, pevUnbegun: {partOver, partFails},
		pevNotReady: {partAway, partWait}, pevRefused: {partOver, partFails}, pevLost: {partAway, partWait},
		pevGiveUp: {partOver, partFails}, pevEnd: {partAsked, partSayEnd},
		pevTold: {partAsked, partNothing},
	},
	partTalking: {
		pevAsk: {partTalking, partNothing}, pevRetry: {partTalking, partNothing}, pevUp: {partTalking, partHangUp},
		pevReady: {partTalking, partFiles}, pevTask: {partTalking, partTell}, pevDone: {partOver, partEnds},
		pevUnknown: {partCalling, partRedial}, pevOrphan: {partIdle, partHangUp}, pevUnbegun: {partOver, partFails},
		pevNotReady: {partAway, partWait}, pevRefused: {partOver, partFails}, pevLost: {partAway, partWait},
		pevGiveUp: {partOver, partFails}, pevEnd: {partTalking, partSayEnd},
		pevTold: {partTalking, partNothing},
	},
	partAway: {
		pevAsk: {partCalling, partDial}, pevRetry: {partCalling, partDial}, pevUp: {partAway, partHangUp},
		pevReady: {partAway, partNothing}, pevTask: {partAway, partNothing}, pevDone: {partAway, partNothing},
		pevUnknown: {partAway, partNothing}, pevOrphan: {partAway, partNothing}, pevUnbegun: {partAway, partNothing},
		pevNotReady: {partAway, partNothing}, pevRefused: {partAway, partNothing}, pevLost: {partAway, partNothing},
		pevGiveUp: {partOver, partFails}, pevEnd: {partAway, partNothing},
		pevTold: {partOver, partHangUp},
	},
	partOver: {
		pevAsk: {partOver, partNothing}, pevRetry: {partOver, partNothing}, pevUp: {partOver, partHangUp},
		pevReady: {partOver, partNothing}, pevTask: {partOver, partNothing}, pevDone: {partOver, partNothing},
		pevUnknown: {partOver, partNothing}, pevOrphan: {partOver, partNothing}, pevUnbegun: {partOver, partNothing},
		pevNotReady: {partOver, partNothing}, pevRefused: {partOver, partNothing}, pevLost: {partOver, partNothing},
		pevGiveUp: {partOver, partNothing}, pevEnd: {partOver, partNothing},
		pevTold: {partOver, partNothing},
	},
}

// partEndsBy says for each phase of a part how long it may last, or who ends it.
var partEndsBy = [numPartPhases]string{
	partIdle:    "its command comes back, or its step is stopped (lonelyStep)",
	partCalling: "peerFirst, then it is away",
	partAsked:   "the node answers, or the connection ends (stepio.Bound)",
	partTalking: "it ends, or the connection does; its step's limit, command or job stop it",
	partAway: "the command knows all its tasks' ends from its relay, or the node's prolog has ended; or partFirst " +
		"without any answer, partPatience after one, partLast when it is to end: then it is given up",
	partOver: "its step ends",
}
