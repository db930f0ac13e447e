package proto

// KindName gives the name and the number that statistics show for requests of a kind: Slurm's where it has such a
// request, so that tools which know sdiag's tables find what they look for.
func KindName(kind uint16) (name string, number uint32) {
	switch kind {
	case KindPing:
		return "REQUEST_PING", 1008
	case KindSubmit:
		return "REQUEST_SUBMIT_BATCH_JOB", 4003
	case KindSubmitEach:
		return "REQUEST_SUBMIT_EACH", uint32(kind)
	case KindJobs:
		return "REQUEST_JOB_INFO", 2003
	case KindNodes:
		return "REQUEST_NODE_INFO", 2007
	case KindPartitions:
		return "REQUEST_PARTITION_INFO", 2009
	case KindConfig:
		return "REQUEST_BUILD_INFO", 2001
	case KindCancel:
		return "REQUEST_KILL_JOB", 5032
	case KindUpdateJob:
		return "REQUEST_UPDATE_JOB", 3001
	case KindUpdateNode:
		return "REQUEST_UPDATE_NODE", 3002
	case KindReconfigure:
		return "REQUEST_RECONFIGURE", 1003
	case KindWait:
		return "REQUEST_JOB_WAIT", uint32(kind)
	case KindAcct:
		return "REQUEST_ACCOUNTING", uint32(kind)
	case KindShares:
		return "REQUEST_SHARE_INFO", 2022
	case KindDiag:
		return "REQUEST_STATS_INFO", 2035
	case KindDiagReset:
		return "REQUEST_STATS_RESET", uint32(kind)
	case KindPrio:
		return "REQUEST_PRIORITY_FACTORS", 2026
	case KindAccounts:
		return "REQUEST_ACCOUNTS", uint32(kind)
	case KindEditAccounts:
		return "REQUEST_UPDATE_ACCOUNTS", uint32(kind)
	case KindReservations:
		return "REQUEST_RESERVATION_INFO", 2024
	case KindReserve:
		return "REQUEST_UPDATE_RESERVATION", 3009
	case KindPeers:
		return "REQUEST_NODE_ADDRESSES", uint32(kind)
	case KindAttend:
		return "REQUEST_JOB_ATTEND", uint32(kind)
	case KindDoctor:
		return "REQUEST_DOCTOR", uint32(kind)
	case KindMIG:
		return "REQUEST_MIG", uint32(kind)
	case KindSteps:
		return "REQUEST_JOB_STEP_INFO", 2005
	case KindStat:
		return "REQUEST_JOB_STEP_STAT", 5027
	case KindWhy:
		return "REQUEST_JOB_WHY", uint32(kind)
	case KindDump:
		return "REQUEST_STATE_DUMP", uint32(kind)
	case KindScript:
		return "REQUEST_BATCH_SCRIPT", 2051
	case KindHello:
		return "MESSAGE_NODE_REGISTRATION_STATUS", 1002
	}
	return "REQUEST_OTHER", uint32(kind)
}
