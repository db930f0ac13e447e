package trail

// The events of jobs. They are only logged: jobs have records of their own in gdbd.
const (
	TaskSubmitted = "task_submitted"
	TaskScheduled = "task_scheduled"
	TaskFinished  = "task_finished"
	TaskRequeued  = "task_requeued"
	TaskSuspended = "task_suspended"
	TaskResumed   = "task_resumed"
	TaskPreempted = "task_preempted"
	TaskResized   = "task_resized"
)

// The events of nodes' daemons. They are only logged.
const (
	AgentRegistered = "agent_registered"
	AgentOffline    = "agent_offline"
)

// The events of the trail.
const (
	TaskCancelled   = "task_cancelled"
	TaskSignaled    = "task_signaled"
	TaskRequeuing   = "task_requeuing"
	TaskChanged     = "task_changed"
	NodeDown        = "node_down"
	NodeDrain       = "node_drain"
	NodeUp          = "node_up"
	NodeChanged     = "node_changed"
	GPUOut          = "gpu_out"
	GPUBack         = "gpu_back"
	AccountChanged  = "account_changed"
	Reserved        = "reservation_set"
	ReservationOver = "reservation_over"
	ResvChanged     = "reservation_changed"
	PartChanged     = "partition_changed"
	ConfigChanged   = "configuration_changed"
	ClusterSize     = "cluster_size"
	TriggerSet      = "trigger_set"
	TriggerCleared  = "trigger_cleared"
	TriggerRan      = "trigger_ran"
	TriggerNotRun   = "trigger_not_run"
)

// Kinds of things.
const (
	Job         = "job"
	Node        = "node"
	GPU         = "gpu"
	Account     = "account"
	Reservation = "reservation"
	Partition   = "partition"
	Config      = "config"
	Cluster     = "cluster"
	Trigger     = "trigger"
)

// States of nodes that take no jobs.
const (
	Down  = "DOWN"
	Drain = "DRAIN"
)

// Event is a row of the table.
type Event struct {
	Name  string
	Means string // when it happens
	Kept  bool   // in gdbd, and not only in the log
}

// Events is the table, in the order of the manual page.
func Events() []Event {
	return []Event{
		{TaskSubmitted, "a job was submitted", false},
		{TaskScheduled, "a job got its nodes and starts", false},
		{TaskFinished, "a job ended, with its state, exit code and reason", false},
		{TaskRequeued, "a job is back in the queue", false},
		{TaskSuspended, "a job was suspended", false},
		{TaskResumed, "a suspended job goes on", false},
		{TaskPreempted, "a job begins to end because another one takes its place", false},
		{TaskResized, "a running job has other nodes than before", false},
		{TaskCancelled, "a user cancelled a job", true},
		{TaskSignaled, "a user sent a job a signal", true},
		{TaskRequeuing, "a user put a job back into the queue", true},
		{TaskChanged, "a user changed, held, released, suspended or resumed a job", true},
		{AgentRegistered, "a node's gnoded registered", false},
		{AgentOffline, "a node's gnoded has been silent for SlurmdTimeout", false},
		{NodeDown, "a node takes no jobs, and those on it end", true},
		{NodeDrain, "a node takes no new jobs", true},
		{NodeUp, "a node takes jobs again, or is not in the configuration any more", true},
		{NodeChanged, "a user changed a node", true},
		{GPUOut, "a GPU, or another unit of a node, went out of service", true},
		{GPUBack, "it is back in service", true},
		{AccountChanged, "a user changed an account, user, association or QOS", true},
		{Reserved, "a reservation was made, changed, or moved to its next occurrence", true},
		{ReservationOver, "a reservation is over or was deleted", true},
		{ResvChanged, "a user made, changed or deleted a reservation", true},
		{PartChanged, "a user made, changed or deleted a partition", true},
		{ConfigChanged, "a user had the configuration read again, and it had changed", true},
		{ClusterSize, "the cluster's nodes have other resources than before", true},
		{TriggerSet, "a user set a trigger", true},
		{TriggerCleared, "a user cleared a trigger", true},
		{TriggerRan, "the program of a trigger has run, as the user who set it", true},
		{TriggerNotRun, "the program of a trigger was not run, and why", true},
	}
}
