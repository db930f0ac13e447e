package proto

// Kinds of frames. The numbers are on the wire: append only. Each has a row in requests.go.
const (
	KindPing uint16 = iota + 1
	KindSubmit
	KindJobs
	KindNodes
	KindPartitions
	KindConfig
	KindCancel
	KindUpdateJob
	KindUpdateNode
	KindReconfigure
	KindWait
	KindAcct
	KindShares
	KindDiag
	KindScript
	KindDump         // Empty -> stream of DumpChunk
	KindAccounts     // AccountsRequest -> stream of AccountsChunk
	KindEditAccounts // EditAccountsRequest -> Empty
	KindPrio         // PrioRequest -> stream of PrioChunk
	KindDiagReset    // as KindDiag, and then counting begins anew
	KindWhy          // WhyRequest -> WhyReply
	KindReservations // Empty -> ReservationsReply
	KindReserve      // ReserveRequest -> ReserveReply
	KindStat         // StatRequest -> StatReply
	KindSteps        // StepsRequest -> stream of StepsChunk
	KindPeers        // PeersRequest -> PeersReply
	KindAttend       // AttendRequest -> Empty, and then the connection is the job's
	KindDoctor       // DoctorRequest -> DoctorReply
	KindSubmitEach   // SubmitEachRequest -> SubmitEachReply
	KindMIG          // MIGRequest -> MIGReply
	KindSignal       // CancelRequest with a Signal -> TargetsReply
)

// Kinds between daemons.
const (
	KindForward uint16 = iota + 100 // Forward -> whatever the wrapped request answers
	KindHello                       // Hello -> Welcome, then the connection is a node session
	KindWelcome
	KindOrders
	KindReports
	KindReportAck
	KindHeartbeat
	KindPut        // Put -> PutReply
	KindQuery      // AcctRequest -> stream of RecordsChunk
	KindNodeAsk    // NodeAsk, on a node session, to the node
	KindNodeAnswer // NodeAnswer, on a node session, to the leader
)

// Limits on what one message may hold.
const (
	MaxTargets    = 10000   // job ids named in one command
	MaxEnvBytes   = 4 << 20 // environment of a submission
	MaxFieldBytes = 4096    // a name, a path, a comment
	ChunkJobs     = 512     // jobs, nodes or records in one frame of a streamed answer
	MaxEachJobs   = 512     // jobs of one SubmitEachRequest
)
