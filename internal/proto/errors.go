package proto

// Code tells programs what went wrong; the sentence that comes with it tells users. The numbers are on the wire: append
// only.
type Code = uint16

// The codes. Codes with a text in Text have the words that Slurm's tools parse.
const (
	CodeInternal Code = iota + 1
	CodeBadRequest
	CodeAccess
	CodeInvalidJob
	CodeInvalidPartition
	CodeInvalidAccount
	CodeInvalidQOS
	CodeNodeConfig
	CodeInvalidGres
	CodeTimeLimit
	CodePolicy
	CodeFeature
	CodeDependency
	CodeArray
	CodeNodeCount
	CodeTooManyCPUs
	CodeNodeNotAvail
	CodeReservation
	CodeUser
	CodeAlreadyDone
	CodeJobPending
	CodeInvalidNode
	CodeNotLeader    // this controller does not lead, and has done nothing of the request
	CodeNoController // no leader has got the request
	CodeNoAccounting
	CodeConfig
	CodeBusy
	CodeScript
	CodeMemory
	CodePartitionDown
	CodeRequeue
	CodeHeld
	CodeNotPending
	CodeOutdated // the facts from which the request was made have changed: make it again
	CodeResvBusy
	CodeResvName
	CodeResvAccess
	CodeResvOverlap
	CodeResvUsers
	CodeNodesBusy
	CodeTimeValue
	CodeUnknown // the answer to a change was lost: it may have been made; only one with an id may be made again
	CodeBegun   // something outside of the facts was begun for the request, and its outcome is lost for ever
	CodeNotHere // the daemon whose socket was asked may not pass this on for this user; another one may
	CodeWholeHet
	CodePartitionInUse
	CodeFinished
	CodeNotSuspended
	CodeInvalidWCKey
	CodeCronModify
	CodeCronCancel
	CodeTriggerTaken
)

// firstTransport is the first code of internal/rpc's own, about the connection and not the request.
const firstTransport Code = 0xff00

// Settled reports whether an error with this code is the answer to a request, whatever became of earlier tries of it.
// The others say only that this try was not taken, or is not known to be.
func Settled(c Code) bool {
	switch c {
	case CodeInternal, CodeNotLeader, CodeNoController, CodeUnknown, CodeBusy, CodeNotHere:
		return false
	}
	return c < firstTransport
}

// What refusals of the code CodeNodeConfig say where it is memory or CPUs of which no node has enough. Commands look
// for them, to say what Slurm's say then.
const (
	TooMuchMemory = "has the memory that the job needs on one node"
	TooManyCPUs   = "has the CPUs that the job needs on one node"
	NoSuchTmp     = "its --tmp space"
	NoSuchCores   = "its sockets, cores and threads"
)

// Text gives Slurm's words for a code, or "" if there are none.
func Text(c Code) string {
	switch c {
	case CodeAccess, CodeNotHere:
		return "Access/permission denied"
	case CodeInvalidJob:
		return "Invalid job id specified"
	case CodeInvalidPartition:
		return "Invalid partition name specified"
	case CodeInvalidAccount:
		return "Invalid account or account/partition combination specified"
	case CodeInvalidQOS:
		return "Invalid qos specification"
	case CodeNodeConfig:
		return "Requested node configuration is not available"
	case CodeInvalidGres:
		return "Invalid generic resource (gres) specification"
	case CodeTimeLimit:
		return "Requested time limit is invalid (missing or exceeds some limit)"
	case CodePolicy:
		return "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
	case CodeFeature:
		return "Invalid feature specification"
	case CodeDependency:
		return "Job dependency problem"
	case CodeArray:
		return "Invalid job array specification"
	case CodeNodeCount:
		return "Node count specification invalid"
	case CodeTooManyCPUs:
		return "More processors requested than permitted"
	case CodeNodeNotAvail:
		return "Required node not available (down, drained or reserved)"
	case CodeReservation:
		return "Requested reservation is invalid"
	case CodeResvBusy:
		return "Requested reservation is in use"
	case CodeResvName:
		return "Duplicate reservation name"
	case CodeResvAccess:
		return "Access denied to requested reservation"
	case CodeResvOverlap:
		return "Requested reservation overlaps with another reservation"
	case CodeResvUsers:
		return "Reservation request lacks users, groups or accounts"
	case CodeNodesBusy:
		return "Requested nodes are busy"
	case CodeTimeValue:
		return "Invalid time specified"
	case CodeUser:
		return "Invalid user id"
	case CodeAlreadyDone:
		return "Job/step already completing or completed"
	case CodeJobPending:
		return "Job is pending execution"
	case CodeInvalidNode:
		return "Invalid node name specified"
	case CodeMemory:
		return "Memory required by task is not available"
	case CodePartitionDown:
		return "Required partition not available (inactive or drain)"
	case CodePartitionInUse:
		return "Partition is in use"
	case CodeNotPending:
		return "Job is no longer pending execution"
	case CodeHeld:
		return "Job is in held state, pending scheduler release"
	case CodeRequeue:
		return "Requested operation is presently disabled"
	case CodeWholeHet:
		return "Operation not permitted on individual component of heterogeneous job"
	case CodeFinished:
		return "Job has already finished"
	case CodeNotSuspended:
		return "Job is not suspended"
	case CodeInvalidWCKey:
		return "Invalid wckey specification"
	case CodeCronModify:
		return "Cannot modify scrontab jobs through scontrol"
	case CodeCronCancel:
		return "Cannot cancel scrontab jobs without --cron flag."
	case CodeTriggerTaken:
		return "Duplicate event trigger"
	}
	return ""
}

// Sentence gives Slurm's words for a code, if there are any, followed by the detail.
func Sentence(c Code, detail string) string {
	text := Text(c)
	switch {
	case text == "":
		return detail
	case detail == "":
		return text
	}
	return text + ": " + detail
}

// ErrorNumbers are Slurm's numbers of errors (slurm_errno.h) for the cluster's codes.
var ErrorNumbers = map[Code]int{
	CodeBadRequest: 1000, CodeAccess: 2002, CodeNotHere: 2002, CodeInvalidJob: 2017, CodeInvalidPartition: 2000,
	CodeInvalidAccount: 2045, CodeInvalidQOS: 2066, CodeNodeConfig: 2014, CodeInvalidGres: 2072, CodeTimeLimit: 2051,
	CodePolicy: 2050, CodeFeature: 2029, CodeDependency: 2038, CodeArray: 2081, CodeNodeCount: 2006,
	CodeTooManyCPUs: 2005, CodeNodeNotAvail: 2068, CodeReservation: 2053, CodeUser: 2167, CodeAlreadyDone: 2021,
	CodeJobPending: 2024, CodeInvalidNode: 2018, CodeNotLeader: 2027, CodeNoController: 1800, CodeNoAccounting: 7000,
	CodeMemory: 2044, CodePartitionDown: 2070, CodeRequeue: 2037, CodeHeld: 2042, CodeNotPending: 2073,
	CodeResvBusy: 2055, CodeResvName: 2082, CodeResvAccess: 2052, CodeResvOverlap: 2058, CodeResvUsers: 2080,
	CodeNodesBusy: 2016, CodeTimeValue: 2054, CodeScript: 2009, CodeConfig: 2090,
	CodePartitionInUse: 2075, CodeFinished: 2084, CodeNotSuspended: 2087, CodeWholeHet: 2108, CodeInvalidWCKey: 2057,
}

// NumberText gives Slurm's words for one of these numbers, "" for others. The first code with the number counts.
func NumberText(n int) string {
	first := Code(0)
	for code, number := range ErrorNumbers {
		if number == n && (first == 0 || code < first) {
			first = code
		}
	}
	if first == 0 {
		return ""
	}
	return Text(first)
}
