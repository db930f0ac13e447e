package model

// Bounds for Wire methods. They are what a reader accepts, not what is sensible: the limit of an option is smaller, and
// is checked where the option is read. A bound only ever grows (see package wire).
const (
	MaxName = 4 << 10  // bytes of a name, a word or a number as text
	MaxText = 1 << 20  // bytes of a sentence, a path, a command line, a list in one text
	MaxFile = 64 << 20 // bytes of a script, an environment, a frame in a frame
	MaxFew  = 4 << 10  // entries of short lists of a job or node: TRES, generic resources, words of a bit set
	MaxList = 1 << 16  // entries of a list of nodes or of names
	MaxMany = 1 << 20  // entries of a list of jobs, targets, records or processes

	// MaxRanges bounds the ranges of a TaskSet: tasks that are left of an array as large as MaxArraySize lets it be may
	// take one for two tasks.
	MaxRanges = 1 << 21
)
