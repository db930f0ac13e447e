package noded

import (
	"fmt"
	"time"

	"gbatch/internal/model"
	"gbatch/noded/image"
)

// attemptstate.go is the state table of attempts: for each phase and each happening the next phase and the act, and for
// each phase what ends it. Every pair has an entry; testdata/attemptstates.txt shows the table for review.
//
// The usual way:
//
//	accepted -> preparing -> (prologue ->) ordered -> running -> ending -> (epilogue ->)
//	over -> (acknowledged: forgotten)
//
// On nodes that don't run the batch script, an attempt is ready between its prolog and its end. No phase lasts for
// ever: patience says how long each may take, and who ends the few phases that this node can't end itself.

// phase is the phase of an attempt on this node.
type phase uint8

const (
	accepted    phase = iota // in the spool; gshim may or may not know it
	interrupted              // the same, and an earlier gnoded has begun its prolog
	preparing                // a worker makes its script and control group
	unmaking                 // the same, and it is to end
	prologue                 // its prolog runs
	curbed                   // the same, and it is to end: the prolog is killed after KillWait
	ready                    // the prolog has run, and that was reported
	ordered                  // gshim has the order and has not answered
	recalled                 // the same, and it is to end
	belated                  // its script did not start within BatchStartTimeout; it is killed and counts as not started
	running                  // its script runs
	stopping                 // SIGTERM has been sent; SIGKILL follows after KillWait
	killing                  // SIGKILL has been sent, and is sent again
	ending                   // its script has ended, or never ran; steps end, and everything that it left is removed
	abandoned                // processes survive SIGKILL; the node is drained, and the attempt ends without them
	epilogue                 // nothing of it is left, and its epilog runs
	over                     // its last report is on disk and waits for the leader
	numPhases
)

var phaseNames = [numPhases]string{
	accepted: "accepted", interrupted: "interrupted", preparing: "preparing", unmaking: "unmaking", prologue: "prologue",
	curbed: "curbed", ready: "ready", ordered: "ordered", recalled: "recalled", belated: "belated", running: "running",
	stopping: "stopping", killing: "killing", ending: "ending", abandoned: "abandoned", epilogue: "epilogue", over: "over",
}

func (p phase) String() string { return wordFor(phaseNames[:], "phase", p) }

// happening is something that happens to an attempt.
type happening uint8

const (
	evLaunch    happening = iota // the leader orders it to run
	evPrepare                    // the leader orders it to be prepared, and no more
	evStop                       // the leader wants it ended
	evForget                     // the leader does not know it: it ends at once and is not reported
	evKill                       // a user asks for SIGKILL to all of it
	evSignal                     // a user asks for another signal
	evProlog                     // it is made, and its prolog is due
	evReady                      // it has reached the phase that the leader asks for
	evOrder                      // its order is due
	evNotMade                    // its script or group could not be made
	evFault                      // its prolog failed
	evStarted                    // gshim says that its script runs
	evEnded                      // gshim says that its script has ended, or could not be started
	evMissing                    // gshim, after a new connection, does not know it
	evLost                       // gshim, after a new connection, has lost it, or the machine was rebooted
	evStepsOver                  // its last step has ended
	evCleared                    // nothing of it is left, and it has no epilog
	evEpilog                     // nothing of it is left, and its epilog is due
	evLeft                       // something of it is still there
	evRun                        // its epilog has run
	evDeadline                   // its phase has taken too long
	evGiveUp                     // processes have survived SIGKILL for UnkillableStepTimeout: stop waiting for them
	numHappenings
)

var happeningNames = [numHappenings]string{
	evLaunch: "launch", evPrepare: "prepare", evStop: "stop", evForget: "forget", evKill: "kill", evSignal: "signal",
	evProlog: "prolog due", evReady: "ready", evOrder: "order due", evNotMade: "not made", evFault: "prolog failed",
	evStarted: "started", evEnded: "ended", evMissing: "missing", evLost: "lost", evStepsOver: "steps over",
	evCleared: "cleared", evEpilog: "epilog due", evLeft: "not cleared", evRun: "epilog over", evDeadline: "deadline",
	evGiveUp: "give up",
}

func (e happening) String() string { return wordFor(happeningNames[:], "happening", e) }

// act is an action of the table. loop.act has the code.
type act uint8

const (
	actMissing    act = iota // the table has a hole: a test fails
	doNothing                // it changes nothing here
	doPrepare                // a worker makes the script and the control group
	doRepeat                 // report its state again
	doReplace                // keep the launch if its number is used again, otherwise report its state again
	doKeepSignal             // send the signal when it runs
	doSignal                 // send the signal
	doSignalSteps            // send the signal to its steps
	doProlog                 // run its prolog, or continue it
	doCut                    // let the prolog run for KillWait, then kill it
	doProgram                // order its next program
	doReady                  // tell the leader that it is ready
	doOrder                  // order gshim to run its script
	doOrderAgain             // the same order once more
	doNotMade                // report that it could not be launched
	doFault                  // report that the prolog failed, clear away
	doBegin                  // record that it runs, report it
	doTerminate              // SIGCONT and SIGTERM to all of it
	doKill                   // SIGKILL to all of it
	doKillLate               // record that it started too late, SIGKILL
	doKillStray              // SIGKILL to processes that should not be there
	doClear                  // end its steps, then remove everything that it left
	doKillSteps              // SIGKILL to its steps
	doNoteEnd                // keep how its script ended
	doAgain                  // try again to remove it, a little later
	doGiveUp                 // drain the node and name the surviving processes, drop its steps, try once more
	doLeave                  // end it; remaining processes are ended in the background
	doEpilog                 // keep its last report, run its epilog
	doReport                 // report its end
	doLast                   // report the end that was kept while its epilog ran
	doDrop                   // forget it
	doAck                    // let gshim forget it
	numActs
)

var actNames = [numActs]string{
	doNothing: "-", doPrepare: "make script and group", doRepeat: "report again", doReplace: "keep the launch for later",
	doKeepSignal: "keep the signal", doSignal: "signal", doSignalSteps: "signal its steps", doProlog: "run prolog",
	doCut: "cut prolog short", doProgram: "run program", doReady: "report ready", doOrder: "order",
	doOrderAgain: "order again",
	doNotMade:    "report launch failure", doFault: "report prolog failure, clear", doBegin: "note and report the start",
	doTerminate: "SIGTERM", doKill: "SIGKILL", doKillLate: "note late start, SIGKILL", doKillStray: "SIGKILL a stray",
	doClear: "end steps, clear", doKillSteps: "SIGKILL steps", doNoteEnd: "keep exit", doAgain: "clear again later",
	doGiveUp: "drain node, drop steps, clear once", doLeave: "report end, clear in background", doEpilog: "run epilog",
	doReport: "report end", doLast: "report the kept end", doDrop: "drop", doAck: "let gshim forget",
}

func (a act) String() string { return wordFor(actNames[:], "act", a) }

type attemptCell = cell[phase, act]

// attemptTable is the table. Rows are phases, columns happenings.
var attemptTable = [numPhases][numHappenings]attemptCell{
	accepted: {
		evLaunch: {preparing, doPrepare}, evPrepare: {preparing, doPrepare}, evStop: {ending, doClear},
		evForget: {ending, doClear}, evKill: {accepted, doKeepSignal}, evSignal: {accepted, doKeepSignal},
		evProlog: {accepted, doNothing}, evReady: {accepted, doNothing}, evOrder: {accepted, doNothing},
		evNotMade: {accepted, doNothing}, evFault: {accepted, doNothing}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {accepted, doNothing}, evLost: {ending, doClear},
		evStepsOver: {accepted, doNothing}, evCleared: {accepted, doNothing}, evEpilog: {accepted, doNothing},
		evLeft: {accepted, doNothing}, evRun: {accepted, doNothing}, evDeadline: {accepted, doNothing},
		evGiveUp: {accepted, doNothing},
	},
	interrupted: {
		evLaunch: {preparing, doPrepare}, evPrepare: {preparing, doPrepare}, evStop: {curbed, doProgram},
		evForget: {curbed, doProgram}, evKill: {interrupted, doKeepSignal},
		evSignal: {interrupted, doKeepSignal}, evProlog: {interrupted, doNothing},
		evReady: {interrupted, doNothing}, evOrder: {interrupted, doNothing},
		evNotMade: {interrupted, doNothing}, evFault: {interrupted, doNothing}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {interrupted, doNothing}, evLost: {ending, doClear},
		evStepsOver: {interrupted, doNothing}, evCleared: {interrupted, doNothing},
		evEpilog: {interrupted, doNothing}, evLeft: {interrupted, doNothing}, evRun: {interrupted, doNothing},
		evDeadline: {interrupted, doNothing}, evGiveUp: {interrupted, doNothing},
	},
	preparing: {
		evLaunch: {preparing, doNothing}, evPrepare: {preparing, doNothing}, evStop: {unmaking, doNothing},
		evForget: {unmaking, doNothing}, evKill: {preparing, doKeepSignal}, evSignal: {preparing, doKeepSignal},
		evProlog: {prologue, doProlog}, evReady: {ready, doReady}, evOrder: {ordered, doOrder},
		evNotMade: {over, doNotMade}, evFault: {preparing, doNothing}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {preparing, doNothing}, evLost: {preparing, doNothing},
		evStepsOver: {preparing, doNothing}, evCleared: {preparing, doNothing},
		evEpilog: {preparing, doNothing}, evLeft: {preparing, doNothing}, evRun: {preparing, doNothing},
		evDeadline: {over, doNotMade}, evGiveUp: {over, doNotMade},
	},
	unmaking: {
		evLaunch: {unmaking, doReplace}, evPrepare: {unmaking, doReplace}, evStop: {unmaking, doNothing},
		evForget: {unmaking, doNothing}, evKill: {unmaking, doNothing}, evSignal: {unmaking, doNothing},
		evProlog: {ending, doClear}, evReady: {ending, doClear}, evOrder: {ending, doClear},
		evNotMade: {over, doNotMade}, evFault: {unmaking, doNothing}, evStarted: {killing, doKill},
		evEnded: {ending, doClear}, evMissing: {unmaking, doNothing}, evLost: {unmaking, doNothing},
		evStepsOver: {unmaking, doNothing}, evCleared: {unmaking, doNothing}, evEpilog: {unmaking, doNothing},
		evLeft: {unmaking, doNothing}, evRun: {unmaking, doNothing}, evDeadline: {over, doNotMade},
		evGiveUp: {over, doNotMade},
	},
	prologue: {
		evLaunch: {prologue, doNothing}, evPrepare: {prologue, doNothing}, evStop: {curbed, doCut},
		evForget: {curbed, doCut}, evKill: {prologue, doKeepSignal}, evSignal: {prologue, doKeepSignal},
		evProlog: {prologue, doNothing}, evReady: {ready, doReady}, evOrder: {ordered, doOrder},
		evNotMade: {prologue, doNothing}, evFault: {ending, doFault}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {prologue, doNothing}, evLost: {prologue, doNothing},
		evStepsOver: {prologue, doNothing}, evCleared: {prologue, doNothing}, evEpilog: {prologue, doNothing},
		evLeft: {prologue, doNothing}, evRun: {prologue, doNothing}, evDeadline: {ending, doFault},
		evGiveUp: {abandoned, doGiveUp},
	},
	curbed: {
		evLaunch: {curbed, doReplace}, evPrepare: {curbed, doReplace}, evStop: {curbed, doNothing},
		evForget: {curbed, doNothing}, evKill: {curbed, doNothing}, evSignal: {curbed, doNothing},
		evProlog: {curbed, doNothing}, evReady: {ending, doClear}, evOrder: {ending, doClear},
		evNotMade: {curbed, doNothing}, evFault: {ending, doFault}, evStarted: {killing, doKill},
		evEnded: {ending, doClear}, evMissing: {curbed, doNothing}, evLost: {curbed, doNothing},
		evStepsOver: {curbed, doNothing}, evCleared: {curbed, doNothing}, evEpilog: {curbed, doNothing},
		evLeft: {curbed, doNothing}, evRun: {curbed, doNothing}, evDeadline: {ending, doClear},
		evGiveUp: {abandoned, doGiveUp},
	},
	ready: {
		evLaunch: {preparing, doPrepare}, evPrepare: {ready, doRepeat}, evStop: {ending, doClear},
		evForget: {ending, doClear}, evKill: {ready, doSignalSteps}, evSignal: {ready, doSignalSteps},
		evProlog: {ready, doNothing}, evReady: {ready, doNothing}, evOrder: {ready, doNothing},
		evNotMade: {ready, doNothing}, evFault: {ready, doNothing}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {ready, doNothing}, evLost: {ready, doNothing},
		evStepsOver: {ready, doNothing}, evCleared: {ready, doNothing}, evEpilog: {ready, doNothing},
		evLeft: {ready, doNothing}, evRun: {ready, doNothing}, evDeadline: {ready, doNothing},
		evGiveUp: {ready, doNothing},
	},
	ordered: {
		evLaunch: {ordered, doRepeat}, evPrepare: {ordered, doRepeat}, evStop: {recalled, doNothing},
		evForget: {recalled, doKill}, evKill: {ordered, doKeepSignal}, evSignal: {ordered, doKeepSignal},
		evProlog: {ordered, doNothing}, evReady: {ordered, doNothing}, evOrder: {ordered, doNothing},
		evNotMade: {ordered, doNothing}, evFault: {ordered, doNothing}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {ordered, doOrderAgain}, evLost: {ending, doClear},
		evStepsOver: {ordered, doNothing}, evCleared: {ordered, doNothing}, evEpilog: {ordered, doNothing},
		evLeft: {ordered, doNothing}, evRun: {ordered, doNothing}, evDeadline: {belated, doKillLate},
		evGiveUp: {abandoned, doGiveUp},
	},
	recalled: {
		evLaunch: {recalled, doReplace}, evPrepare: {recalled, doReplace}, evStop: {recalled, doNothing},
		evForget: {recalled, doKill}, evKill: {recalled, doKill}, evSignal: {recalled, doNothing},
		evProlog: {recalled, doNothing}, evReady: {recalled, doNothing}, evOrder: {recalled, doNothing},
		evNotMade: {recalled, doNothing}, evFault: {recalled, doNothing}, evStarted: {stopping, doTerminate},
		evEnded: {ending, doClear}, evMissing: {recalled, doOrderAgain}, evLost: {ending, doClear},
		evStepsOver: {recalled, doNothing}, evCleared: {recalled, doNothing}, evEpilog: {recalled, doNothing},
		evLeft: {recalled, doNothing}, evRun: {recalled, doNothing}, evDeadline: {recalled, doKill},
		evGiveUp: {abandoned, doGiveUp},
	},
	belated: {
		evLaunch: {belated, doReplace}, evPrepare: {belated, doReplace}, evStop: {belated, doNothing},
		evForget: {belated, doNothing}, evKill: {belated, doKill}, evSignal: {belated, doNothing},
		evProlog: {belated, doNothing}, evReady: {belated, doNothing}, evOrder: {belated, doNothing},
		evNotMade: {belated, doNothing}, evFault: {belated, doNothing}, evStarted: {belated, doKill},
		evEnded: {ending, doClear}, evMissing: {ending, doClear}, evLost: {ending, doClear},
		evStepsOver: {belated, doNothing}, evCleared: {belated, doNothing}, evEpilog: {belated, doNothing},
		evLeft: {belated, doNothing}, evRun: {belated, doNothing}, evDeadline: {belated, doKill},
		evGiveUp: {abandoned, doGiveUp},
	},
	running: {
		evLaunch: {running, doRepeat}, evPrepare: {running, doRepeat}, evStop: {stopping, doTerminate},
		evForget: {killing, doKill}, evKill: {running, doSignal}, evSignal: {running, doSignal},
		evProlog: {running, doNothing}, evReady: {running, doNothing}, evOrder: {running, doNothing},
		evNotMade: {running, doNothing}, evFault: {running, doNothing}, evStarted: {running, doBegin},
		evEnded: {ending, doClear}, evMissing: {ending, doClear}, evLost: {ending, doClear},
		evStepsOver: {running, doNothing}, evCleared: {running, doNothing}, evEpilog: {running, doNothing},
		evLeft: {running, doNothing}, evRun: {running, doNothing}, evDeadline: {running, doNothing},
		evGiveUp: {running, doNothing},
	},
	stopping: {
		evLaunch: {stopping, doReplace}, evPrepare: {stopping, doReplace}, evStop: {stopping, doNothing},
		evForget: {killing, doKill}, evKill: {killing, doKill}, evSignal: {stopping, doSignal},
		evProlog: {stopping, doNothing}, evReady: {stopping, doNothing}, evOrder: {stopping, doNothing},
		evNotMade: {stopping, doNothing}, evFault: {stopping, doNothing}, evStarted: {stopping, doBegin},
		evEnded: {ending, doClear}, evMissing: {ending, doClear}, evLost: {ending, doClear},
		evStepsOver: {stopping, doNothing}, evCleared: {stopping, doNothing}, evEpilog: {stopping, doNothing},
		evLeft: {stopping, doNothing}, evRun: {stopping, doNothing}, evDeadline: {killing, doKill},
		evGiveUp: {killing, doKill},
	},
	killing: {
		evLaunch: {killing, doReplace}, evPrepare: {killing, doReplace}, evStop: {killing, doNothing},
		evForget: {killing, doNothing}, evKill: {killing, doKill}, evSignal: {killing, doNothing},
		evProlog: {killing, doNothing}, evReady: {killing, doNothing}, evOrder: {killing, doNothing},
		evNotMade: {killing, doNothing}, evFault: {killing, doNothing}, evStarted: {killing, doKill},
		evEnded: {ending, doClear}, evMissing: {ending, doClear}, evLost: {ending, doClear},
		evStepsOver: {killing, doNothing}, evCleared: {killing, doNothing}, evEpilog: {killing, doNothing},
		evLeft: {killing, doNothing}, evRun: {killing, doNothing}, evDeadline: {killing, doKill},
		evGiveUp: {abandoned, doGiveUp},
	},
	ending: {
		evLaunch: {ending, doReplace}, evPrepare: {ending, doReplace}, evStop: {ending, doNothing},
		evForget: {ending, doKillSteps}, evKill: {ending, doKillSteps}, evSignal: {ending, doNothing},
		evProlog: {ending, doNothing}, evReady: {ending, doNothing}, evOrder: {ending, doNothing},
		evNotMade: {ending, doNothing}, evFault: {ending, doNothing}, evStarted: {ending, doKillStray},
		evEnded: {ending, doNoteEnd}, evMissing: {ending, doNothing}, evLost: {ending, doNothing},
		evStepsOver: {ending, doClear}, evCleared: {over, doReport}, evEpilog: {epilogue, doEpilog},
		evLeft: {ending, doAgain}, evRun: {ending, doNothing}, evDeadline: {ending, doClear},
		evGiveUp: {abandoned, doGiveUp},
	},
	abandoned: {
		evLaunch: {abandoned, doReplace}, evPrepare: {abandoned, doReplace}, evStop: {abandoned, doNothing},
		evForget: {abandoned, doNothing}, evKill: {abandoned, doNothing}, evSignal: {abandoned, doNothing},
		evProlog: {abandoned, doNothing}, evReady: {abandoned, doNothing}, evOrder: {abandoned, doNothing},
		evNotMade: {abandoned, doNothing}, evFault: {abandoned, doNothing}, evStarted: {abandoned, doKillStray},
		evEnded: {abandoned, doNoteEnd}, evMissing: {abandoned, doNothing}, evLost: {abandoned, doNothing},
		evStepsOver: {abandoned, doNothing}, evCleared: {over, doReport}, evEpilog: {epilogue, doEpilog},
		evLeft: {abandoned, doLeave}, evRun: {abandoned, doNothing}, evDeadline: {abandoned, doLeave},
		evGiveUp: {abandoned, doLeave},
	},
	epilogue: {
		evLaunch: {epilogue, doReplace}, evPrepare: {epilogue, doReplace}, evStop: {epilogue, doNothing},
		evForget: {epilogue, doNothing}, evKill: {epilogue, doNothing}, evSignal: {epilogue, doNothing},
		evProlog: {epilogue, doNothing}, evReady: {epilogue, doNothing}, evOrder: {epilogue, doNothing},
		evNotMade: {epilogue, doNothing}, evFault: {epilogue, doNothing}, evStarted: {epilogue, doKillStray},
		evEnded: {epilogue, doAck}, evMissing: {epilogue, doNothing}, evLost: {epilogue, doNothing},
		evStepsOver: {epilogue, doNothing}, evCleared: {epilogue, doNothing}, evEpilog: {epilogue, doNothing},
		evLeft: {epilogue, doNothing}, evRun: {over, doLast}, evDeadline: {over, doLast},
		evGiveUp: {over, doLast},
	},
	over: {
		evLaunch: {over, doRepeat}, evPrepare: {over, doRepeat}, evStop: {over, doRepeat},
		evForget: {over, doDrop}, evKill: {over, doNothing}, evSignal: {over, doNothing},
		evProlog: {over, doNothing}, evReady: {over, doNothing}, evOrder: {over, doNothing},
		evNotMade: {over, doNothing}, evFault: {over, doNothing}, evStarted: {over, doKillStray},
		evEnded: {over, doAck}, evMissing: {over, doNothing}, evLost: {over, doNothing},
		evStepsOver: {over, doNothing}, evCleared: {over, doNothing}, evEpilog: {over, doNothing},
		evLeft: {over, doNothing}, evRun: {over, doNothing}, evDeadline: {over, doNothing},
		evGiveUp: {over, doNothing},
	},
}

// patience says for each phase how long it may last, or who ends it if this node can't. patienceOf and the table's acts
// arm the deadlines; a test checks that each phase has its line.
var patience = [numPhases]string{
	accepted:    "the leader orders, stops or forgets it in its next session",
	interrupted: "the leader orders, stops or forgets it in its next session",
	preparing:   "makeWait, imageWait with a container, then it is reported as not launched",
	unmaking:    "UnkillableStepTimeout, then it is reported as not launched",
	prologue: "findWait to list the programs; PrologEpilogTimeout or programLimit for each, then SIGKILL; " +
		"UnkillableStepTimeout, then it is abandoned",
	curbed:    "KillWait, then SIGKILL to the program; UnkillableStepTimeout, then it is abandoned",
	ready:     "the leader stops or forgets it",
	ordered:   "BatchStartTimeout, then it is belated",
	recalled:  "KillWait, then SIGKILL every killAgain; UnkillableStepTimeout, then it is abandoned",
	belated:   "SIGKILL every killAgain; UnkillableStepTimeout, then it is abandoned",
	running:   "the job's time limit, which the leader keeps",
	stopping:  "KillWait, then it is killed",
	killing:   "SIGKILL every killAgain; UnkillableStepTimeout, then it is abandoned",
	ending:    "its steps' deadlines; then it is cleared again and again; UnkillableStepTimeout, then it is abandoned",
	abandoned: "abandonWait, then it ends without what is left",
	epilogue: "findWait to list the programs; PrologEpilogTimeout or programLimit for each, then SIGKILL; " +
		"UnkillableStepTimeout, then its end is reported",
	over: "the leader acknowledges its report",
}

const (
	// makeWait is how long making a script and a control group may take: they are on this machine's own disk.
	makeWait = 5 * time.Minute
	// imageWait is how long that may take with a container, whose image may have to be fetched.
	imageWait = image.MostTime + makeWait
	// abandonWait is how long a last try to remove what survives SIGKILL may take.
	abandonWait = 10 * time.Second
	// findWait is how long listing the programs of Prolog or Epilog may take: their directory may be on a file server.
	findWait = time.Minute
	// programLimit bounds a program of Prolog or Epilog without PrologEpilogTimeout.
	programLimit = model.ProgramLimitS * time.Second
	// unkillableDefault is UnkillableStepTimeout if the leader has not sent it.
	unkillableDefault = 60 * time.Second
)

// cell is what a happening does in a phase: the next phase, and an act. A table, of attempts, steps or steps' parts on
// other nodes, has a cell for every pair of phase and happening; the tests hold each to its golden file.
type cell[P, A ~uint8] struct {
	next P
	do   A
}

// wordFor gives the word for a phase, a happening or an act, and its number where it has none.
func wordFor[T ~uint8](words []string, what string, x T) string {
	if int(x) < len(words) {
		return words[x]
	}
	return fmt.Sprintf("%s %d", what, uint8(x))
}
