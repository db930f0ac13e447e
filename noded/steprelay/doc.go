// Package steprelay has the processes beside a step's tasks that carry what they read and write.
//
// relay.go is one on a node other than the tasks' command's: it forwards their output to the
// command and the command's input to them (internal/stepio). gshim starts it in the step's control
// group, as the step's user, so it outlives gnoded; it ends by itself when the pipes do. It owns
// nothing else: gnoded makes the pipes and sends the command's address in one message on the socket
// that is the process's standard input, followed by the pipes' ends.
//
// It goes on until the command has read everything, however long that takes.
//
// listen.go is one beside tasks that write to their own host: it passes on what they write, with
// labels if their files want them. If they have GPUs, its exit status tells gnoded if they say that
// a GPU had too little memory.
// rest.go has what both do when the tasks have ended.
package steprelay
