package proto

// requests.go is the table of requests: a kind's row has everything to know about it without its message, and all code
// that passes a request on reads the row. The zero value of each field is the safe one: a kind without a row, or with
// an empty one, changes something, is never made twice, and needs a trusted daemon.

// Kinds of users' requests. The numbers are on the wire: append only. Each has a row in the table below.
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
	KindDump         // DumpRequest -> stream of DumpChunk
	KindAccounts     // AccountsRequest -> stream of AccountsChunk
	KindEditAccounts // EditAccountsRequest -> Empty
	KindPrio         // PrioRequest -> stream of PrioChunk
	KindDiagReset    // as KindDiag, and then the counts are reset
	KindWhy          // WhyRequest -> WhyReply
	KindReservations // Empty -> ReservationsReply
	KindReserve      // ReserveRequest -> ReserveReply
	KindStat         // StatRequest -> StatReply
	KindSteps        // StepsRequest -> stream of StepsChunk
	KindPeers        // PeersRequest -> PeersReply
	KindAttend       // AttendRequest -> Empty; the job then lives as long as the connection
	KindDoctor       // DoctorRequest -> DoctorReply
	KindSubmitEach   // SubmitEachRequest -> SubmitEachReply
	KindMIG          // MIGRequest -> MIGReply
	KindSignal       // CancelRequest with a Signal -> TargetsReply
	KindTakeover     // TakeoverRequest -> TakeoverReply
	KindOnce         // Once -> the answer to the request in it, which is made at most once

	KindControllers     // Empty -> ControllersReply, of any controller
	KindEditControllers // EditControllersRequest -> EditControllersReply
	KindStale           // Stale -> the answer of the request in it, and then StaleEnd
	KindCerts           // Empty -> CertsReply
	KindEditCerts       // EditCertsRequest -> EditCertsReply
	KindToken           // TokenRequest -> TokenReply
	KindEditTokens      // EditTokensRequest -> EditTokensReply

	KindUpdatePartition // UpdatePartitionRequest -> Empty
	KindSetDebug        // SetDebugRequest -> Empty
	KindReport          // ReportRequest -> stream of ReportChunk
	KindHistory         // HistoryRequest -> stream of HistoryReply
	KindPools           // Empty -> PoolsReply
	KindCrontab         // CrontabRequest -> CrontabReply
	KindSetCrontab      // SetCrontabRequest -> SetCrontabReply
	KindPresent         // PresentRequest -> PresentReply; the job's command is there
	KindTriggers        // Empty -> stream of TriggersChunk
	KindSetTrigger      // SetTriggerRequest -> Empty
	KindClearTriggers   // ClearTriggersRequest -> ClearTriggersReply
	KindDaemon          // DaemonRequest -> DaemonReply; what a node's daemon says of itself
	KindTail            // TailRequest -> TailReply; the end of a job's output
)

// Kinds of requests about money.
const (
	KindMoney     uint16 = 74 // MoneyRequest -> stream of MoneyChunk
	KindEditMoney uint16 = 75 // EditMoneyRequest -> EditMoneyReply
)

// Kinds between daemons.
const (
	KindForward uint16 = iota + 100 // Forward -> the answer to the wrapped request
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
	KindWitness    // Empty -> WitnessReply, of a controller or a node
	KindMoment     // Empty -> MomentReply, of a controller to another
	KindBackup     // Empty -> stream of the bytes of a backup of gdbd's database
	KindBeginEmpty // BeginEmptyRequest -> Empty, of gdbd
	KindDbd        // Empty -> DbdReply
	KindSight      // Sight -> Empty, of the leader to gdbd
	KindJoin       // Join -> Issued, from a host without a certificate
	KindRenew      // Renew -> Issued
	KindSign       // Sign -> Issued, of the leader to another controller
	KindRevoked    // Empty -> Revoked, of any controller
	KindTime       // Empty -> Issued with Now, from a host whose certificate is out of date
	KindUsage      // UsageQuery -> stream of ReportChunk, of gdbd
	KindSamples    // Samples -> Empty, of the leader to gdbd
	KindPast       // HistoryQuery -> stream of HistoryReply, of gdbd
	KindAsked      // Asked -> AskedReply, of the leader to gdbd: once somebody asks for records
)

// Effect says what a request does to the facts.
type Effect uint8

// The effects.
const (
	// Changes: it changes facts, or does something on a node.
	Changes Effect = iota
	// ReadsOwn: it changes nothing, and its answer is for the caller only. As for a change, the daemon that passes it
	// on must be allowed to speak for the caller.
	ReadsOwn
	// Reads: it changes nothing, and every daemon may pass it on.
	Reads
)

// Place says who answers a request.
type Place uint8

// The places.
const (
	// AtLeader: the leader. Every daemon passes the request on to it.
	AtLeader Place = iota
	// AtHost: the daemon of the caller's host; the request is about its connection with the caller.
	AtHost
	// AtDaemon: another daemon. It comes over TLS and never from a user.
	AtDaemon
)

// Request is the row of one kind.
type Request struct {
	Name   string // name in statistics: Slurm's, if it has such a request
	Number uint32 // Slurm's number; 0: it has no such request, and statistics use the kind
	At     Place
	Effect Effect

	// Repeats: the request may be made again as it is when it is not known whether it was carried out. It only reads, or
	// it has an id of its own (Submit), or it asks for a result that a second try finds done (Cancel). Any change may be
	// made again in a Once, which gives it an id.
	Repeats bool

	// OwnID: a change has an id of its own in its message, and needs no Once.
	OwnID bool

	Stream bool   // answered in parts
	WaitS  int    // time that it may take by design, beyond the time for any answer, seconds
	Look   string // the command that shows whether a change was made
	Most   int    // bytes of its message; 0: see MaxBytes
}

// requests has a row for each kind.
var requests = [...]Request{
	KindPing: {Name: "REQUEST_PING", Number: 1008, Effect: Reads, Repeats: true},
	KindSubmit: {Name: "REQUEST_SUBMIT_BATCH_JOB", Number: 4003, Repeats: true, OwnID: true, Look: "gqueue --me",
		Most: largeRequest},
	KindSubmitEach: {Name: "REQUEST_SUBMIT_EACH", Repeats: true, OwnID: true, Look: "gqueue --me",
		Most: largeRequest},
	KindCancel:          {Name: "REQUEST_KILL_JOB", Number: 5032, Repeats: true, Look: "gqueue"},
	KindSignal:          {Name: "REQUEST_SIGNAL_JOB", Look: "the job's output"},
	KindUpdateJob:       {Name: "REQUEST_UPDATE_JOB", Number: 3001, Look: "gcontrol show job"},
	KindUpdateNode:      {Name: "REQUEST_UPDATE_NODE", Number: 3002, Look: "gcontrol show node"},
	KindReserve:         {Name: "REQUEST_UPDATE_RESERVATION", Number: 3009, Look: "gcontrol show reservation"},
	KindUpdatePartition: {Name: "REQUEST_UPDATE_PARTITION", Number: 3005, Look: "gcontrol show partition"},
	KindSetDebug:        {Name: "REQUEST_SET_DEBUG_LEVEL", Number: 1013, Repeats: true, Look: "gcontrol show config"},
	KindMIG: {Name: "REQUEST_MIG", WaitS: MaxMIGS,
		Look: "gcontrol show node, and the log of the node's gnoded"},
	KindReconfigure: {Name: "REQUEST_RECONFIGURE", Number: 1003,
		Look: "gcontrol reconfigure --dry-run"},
	KindEditAccounts: {Name: "REQUEST_UPDATE_ACCOUNTS", Look: "gacctmgr show", Most: largeRequest},
	KindDiagReset:    {Name: "REQUEST_STATS_RESET", Repeats: true, Look: "gdiag"},
	KindTakeover:     {Name: "REQUEST_TAKEOVER", Number: 1010, Repeats: true, Look: "gcontrol ping"},
	KindAttend:       {Name: "REQUEST_JOB_ATTEND", At: AtHost, Look: "gqueue"},
	KindOnce: {Name: "REQUEST_ONCE", Repeats: true, Look: "gcontrol show",
		Most: largeRequest}, // see RequestIn

	KindEditControllers: {Name: "REQUEST_EDIT_CONTROLLERS", Repeats: true, OwnID: true, WaitS: MaxEditControllersS,
		Look: "gcontrol controllers"},

	KindPresent: {Name: "REQUEST_JOB_PRESENT", Effect: ReadsOwn, Repeats: true},

	KindCrontab:    {Name: "REQUEST_CRONTAB", Number: 2200, Effect: ReadsOwn, Repeats: true},
	KindSetCrontab: {Name: "REQUEST_UPDATE_CRONTAB", Number: 2202, Look: "gcrontab -l", Most: largeRequest},

	KindTriggers:      {Name: "REQUEST_TRIGGER_GET", Number: 2018, Effect: Reads, Repeats: true, Stream: true},
	KindSetTrigger:    {Name: "REQUEST_TRIGGER_SET", Number: 2017, Look: "gtrigger --get"},
	KindClearTriggers: {Name: "REQUEST_TRIGGER_CLEAR", Number: 2019, Look: "gtrigger --get"},

	KindToken:      {Name: "REQUEST_AUTH_TOKEN", Number: 5039, Effect: ReadsOwn, Repeats: true},
	KindEditTokens: {Name: "REQUEST_EDIT_TOKENS", Look: "scontrol token"},

	KindEditCerts: {Name: "REQUEST_EDIT_CERTIFICATES", Repeats: true, OwnID: true, Look: "gbatch cert list"},

	KindCerts:        {Name: "REQUEST_CERTIFICATES", Effect: ReadsOwn, Repeats: true},
	KindControllers:  {Name: "REQUEST_CONTROLLERS", Effect: Reads, Repeats: true},
	KindStale:        {Name: "REQUEST_STALE", Effect: Reads, Repeats: true, Stream: true}, // see RequestIn
	KindJobs:         {Name: "REQUEST_JOB_INFO", Number: 2003, Effect: Reads, Repeats: true, Stream: true},
	KindNodes:        {Name: "REQUEST_NODE_INFO", Number: 2007, Effect: Reads, Repeats: true, Stream: true},
	KindPartitions:   {Name: "REQUEST_PARTITION_INFO", Number: 2009, Effect: Reads, Repeats: true},
	KindPools:        {Name: "REQUEST_POOLS", Effect: Reads, Repeats: true},
	KindConfig:       {Name: "REQUEST_BUILD_INFO", Number: 2001, Effect: Reads, Repeats: true},
	KindWait:         {Name: "REQUEST_JOB_WAIT", Effect: Reads, Repeats: true, WaitS: MaxWaitS},
	KindAcct:         {Name: "REQUEST_ACCOUNTING", Effect: Reads, Repeats: true, Stream: true},
	KindReport:       {Name: "REQUEST_REPORT", Effect: Reads, Repeats: true, Stream: true},
	KindHistory:      {Name: "REQUEST_HISTORY", Effect: Reads, Repeats: true, Stream: true},
	KindMoney:        {Name: "REQUEST_MONEY", Effect: Reads, Repeats: true, Stream: true},
	KindEditMoney:    {Name: "REQUEST_UPDATE_MONEY", Look: "gacctmgr show balance"},
	KindShares:       {Name: "REQUEST_SHARE_INFO", Number: 2022, Effect: Reads, Repeats: true},
	KindDiag:         {Name: "REQUEST_STATS_INFO", Number: 2035, Effect: Reads, Repeats: true},
	KindScript:       {Name: "REQUEST_BATCH_SCRIPT", Number: 2051, Effect: ReadsOwn, Repeats: true},
	KindDump:         {Name: "REQUEST_STATE_DUMP", Effect: ReadsOwn, Repeats: true, Stream: true},
	KindAccounts:     {Name: "REQUEST_ACCOUNTS", Effect: Reads, Repeats: true, Stream: true},
	KindPrio:         {Name: "REQUEST_PRIORITY_FACTORS", Number: 2026, Effect: Reads, Repeats: true, Stream: true},
	KindWhy:          {Name: "REQUEST_JOB_WHY", Effect: Reads, Repeats: true},
	KindReservations: {Name: "REQUEST_RESERVATION_INFO", Number: 2024, Effect: Reads, Repeats: true},
	KindDaemon:       {Name: "REQUEST_DAEMON_STATUS", Effect: Reads, Repeats: true},
	KindTail:         {Name: "REQUEST_JOB_OUTPUT", Effect: ReadsOwn, Repeats: true},
	KindStat:         {Name: "REQUEST_JOB_STEP_STAT", Number: 5027, Effect: Reads, Repeats: true},
	KindSteps:        {Name: "REQUEST_JOB_STEP_INFO", Number: 2005, Effect: Reads, Repeats: true, Stream: true},
	KindPeers:        {Name: "REQUEST_NODE_ADDRESSES", Effect: Reads, Repeats: true},
	KindDoctor:       {Name: "REQUEST_DOCTOR", Effect: Reads, Repeats: true},

	KindForward:    {Name: "REQUEST_FORWARD", At: AtDaemon, Most: largeRequest},
	KindHello:      {Name: "MESSAGE_NODE_REGISTRATION_STATUS", Number: 1002, At: AtDaemon, Most: largeRequest},
	KindWelcome:    {Name: "MESSAGE_WELCOME", At: AtDaemon},
	KindOrders:     {Name: "MESSAGE_ORDERS", At: AtDaemon},
	KindReports:    {Name: "MESSAGE_REPORTS", At: AtDaemon},
	KindReportAck:  {Name: "MESSAGE_REPORT_ACK", At: AtDaemon},
	KindHeartbeat:  {Name: "MESSAGE_HEARTBEAT", At: AtDaemon},
	KindPut:        {Name: "REQUEST_PUT_RECORDS", At: AtDaemon, Repeats: true}, // gdbd ignores what it has
	KindQuery:      {Name: "REQUEST_QUERY_RECORDS", At: AtDaemon, Effect: Reads, Repeats: true, Stream: true},
	KindNodeAsk:    {Name: "REQUEST_NODE_ASK", At: AtDaemon},
	KindNodeAnswer: {Name: "RESPONSE_NODE_ASK", At: AtDaemon},
	KindWitness:    {Name: "REQUEST_WITNESS", At: AtDaemon, Effect: Reads, Repeats: true},
	KindMoment:     {Name: "REQUEST_MOMENT", At: AtDaemon, Effect: Reads, Repeats: true},
	KindBackup:     {Name: "REQUEST_BACKUP", At: AtDaemon, Effect: Reads, Repeats: true, Stream: true},
	KindBeginEmpty: {Name: "REQUEST_BEGIN_EMPTY", At: AtDaemon, Repeats: true},
	KindDbd:        {Name: "REQUEST_DBD_STATE", At: AtDaemon, Effect: Reads, Repeats: true},
	KindSight:      {Name: "REQUEST_SIGHT", At: AtDaemon, Repeats: true},
	KindJoin:       {Name: "REQUEST_CERTIFICATE_JOIN", At: AtDaemon, Repeats: true},
	KindRenew:      {Name: "REQUEST_CERTIFICATE_RENEW", At: AtDaemon, Repeats: true},
	KindSign:       {Name: "REQUEST_CERTIFICATE_SIGN", At: AtDaemon, Repeats: true},
	KindRevoked:    {Name: "REQUEST_CERTIFICATES_REVOKED", At: AtDaemon, Effect: Reads, Repeats: true},
	KindTime:       {Name: "REQUEST_TIME", At: AtDaemon, Effect: Reads, Repeats: true},
	KindUsage:      {Name: "REQUEST_USAGE", At: AtDaemon, Effect: Reads, Repeats: true, Stream: true},
	KindSamples:    {Name: "REQUEST_PUT_SAMPLES", At: AtDaemon, Repeats: true},
	KindPast:       {Name: "REQUEST_QUERY_HISTORY", At: AtDaemon, Effect: Reads, Repeats: true, Stream: true},
	KindAsked:      {Name: "REQUEST_RECORDS_ASKED", At: AtDaemon, Effect: Reads, Repeats: true, WaitS: MaxWaitS},
}

// RequestOf gives the row of a kind. A kind that this version does not know gets the zero row, which is the safe one.
func RequestOf(kind uint16) Request {
	var r Request
	if int(kind) < len(requests) {
		r = requests[kind]
	}
	if r.Name == "" {
		r.Name = "REQUEST_OTHER"
	}
	if r.Number == 0 {
		r.Number = uint32(kind)
	}
	return r
}

// MaxBytes is the size, in bytes, of the largest message of a request of this kind; for one that holds another request,
// without that one's own limit.
func MaxBytes(kind uint16) int {
	row := RequestOf(kind)
	switch {
	case kind == KindOnce, kind == KindForward:
		return row.Most + wrapperBytes
	case kind == KindStale:
		return plainRequest + wrapperBytes
	case row.Most > 0:
		return row.Most
	case row.WaitS > 0:
		return waitRequest
	}
	return plainRequest
}

// Waits reports whether requests of this kind may be under way for long by design.
func Waits(kind uint16) bool { return kind == KindAttend || RequestOf(kind).WaitS > 0 }

// ByID reports whether the request is made in a Once: it is a change, at the leader, without an id of its own.
func (r *Request) ByID() bool { return r.Effect == Changes && r.At == AtLeader && !r.OwnID }

// RequestIn gives the row of a request with this body: for a Once the row of the request in it, which then may be
// repeated, and for a Stale likewise. One of what has no business in it gets the safe row.
func RequestIn(kind uint16, body []byte) Request {
	switch kind {
	case KindStale:
		var stale Stale
		if err := Decode(body, &stale); err != nil || stale.Kind == KindStale || stale.Kind == KindPresent {
			return RequestOf(0)
		}
		row := RequestOf(stale.Kind)
		if row.Effect == Changes || row.WaitS > 0 || row.At != AtLeader {
			return RequestOf(0)
		}
		row.Stream = true
		return row
	case KindOnce:
	default:
		return RequestOf(kind)
	}
	var once Once
	if err := Decode(body, &once); err != nil {
		return RequestOf(0)
	}
	row := RequestOf(once.Kind)
	if !row.ByID() || once.Kind == KindOnce {
		return RequestOf(0)
	}
	row.Repeats = true
	return row
}

// Unknown gives the sentence for a change whose result is unknown. why says what happened to its answer.
func (r *Request) Unknown(why string) string {
	s := why + "; it is not known whether the change was made"
	if r.Look != "" {
		s += ": look at " + r.Look + " before you repeat the command"
	}
	return s
}
