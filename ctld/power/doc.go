// Package power says which nodes are powered down and up, and runs the programs that do it:
// SuspendProgram, ResumeProgram, ResumeFailProgram. The leader runs Keeper.Run.
//
// It doesn't own the steps of a node (internal/state/power.go checks each of them again), nor which
// jobs get nodes that are off (internal/sched).
//
// plan.go says what is due at a moment, from the facts alone; spare.go which idle nodes stay up
// (SuspendExcNodes, PowerKeepIdle and the like); keeper.go proposes it and watches the programs;
// program.go runs one.
//
// Everything is level-triggered. A step is in the facts before its program runs, and Told is in
// the facts once that has ended: a new leader runs the programs of steps that are not told. So a
// program may run twice for a node, and never at the same time: a controller that stops leading
// kills what it has started. Rates count on the leader only; a new leader begins a new minute.
package power
