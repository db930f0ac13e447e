package ask

// JobKeys are what gcontrol update job can set, as they are shown. Some have further names, which package ctld knows.
var JobKeys = []string{"TimeLimit", "TimeMin", "Deadline", "Priority", "Nice", "SiteFactor", "StartTime",
	"ArrayTaskThrottle", "Dependency", "Partition", "Reservation", "Account", "QOS", "NumNodes", "ReqNodeList",
	"ExcNodeList", "Features", "Prefer", "Gres", "TresPerJob", "TresPerTask", "Licenses", "NumTasks",
	"NumCPUs", "CPUsPerTask",
	"TasksPerNode", "MinCPUsNode", "MinMemoryNode", "MinMemoryCPU", "MinTmpDiskNode", "Contiguous", "ReqSockets",
	"ReqCores", "ReqThreads", "Switches", "OverSubscribe", "StdIn", "StdOut", "StdErr", "WorkDir", "JobName", "Comment",
	"WCKey", "AdminComment", "MailType", "MailUser", "Requeue", "Reboot"}
