package model

// Bounds of what travels and is stored, for Wire methods. They say what a reader still accepts, not what is sensible:
// an option's own limit is smaller, and is checked where it is asked for. A bound only ever grows (see package wire).
const (
	MaxName = 4 << 10  // bytes of a name, a word or a number as text
	MaxText = 1 << 20  // bytes of a sentence, a path, a command line, a list in one text
	MaxFile = 64 << 20 // bytes of a script, an environment, a frame in a frame
	MaxFew  = 4 << 10  // entries of what a job or node has a few of: TRES, generic resources, words of a bit set
	MaxList = 1 << 16  // entries of a list of nodes or of names
	MaxMany = 1 << 20  // entries of a list of jobs, targets, records or processes
)
