// Package receive is the process that takes in a file on one node of a job, for gbcast and grun
// --bcast. gshim starts it as a task of a step, so it is the job's user, in the job's control group
// and with the job's own directories; it reads the file from its standard input.
//
// What it writes is a new file beside the destination, which no link can lead elsewhere. The
// destination appears with all of its bytes, permissions and times, or not at all. What is there
// stays, unless it is to be replaced; a link is replaced itself.
//
// order.go is what gnoded says, receive.go the process.
//
// It owns nothing else: gnoded says what comes and where it goes.
package receive
