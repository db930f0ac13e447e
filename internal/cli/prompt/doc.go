// Package prompt is what gcontrol, gacctmgr and greport do when they are called without a command:
// they read commands from standard input, one on a line, until quit or the end of the input.
//
// It owns the prompt, the words of a line, the commands that change how the later ones print
// (oneliner, details, quiet ...), and the exit code of all of them. It does not know the other
// commands: each line is a call of the command with the options that hold so far and the words of
// the line.
//
// A line has a limit. A line that is read from something else than a terminal is printed behind the
// prompt, so that the output reads like a session, as Slurm's does.
package prompt
