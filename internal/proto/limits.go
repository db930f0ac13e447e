package proto

// Limits on what one message may hold.
const (
	MaxTargets    = 10000   // job ids named in one command
	MaxEnvBytes   = 4 << 20 // environment of a submission
	MaxFieldBytes = 4096    // a name, a path, a comment
	ChunkJobs     = 512     // jobs, nodes or records in one frame of a streamed answer
	MaxEachJobs   = 512     // jobs of one SubmitEachRequest
)
