package hook

import (
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// form says how a member is written in JSON. What is set may always be a text in the form of gsubmit's option too,
// except for moments.
type form uint8

const (
	asText   form = iota
	number        // a whole number
	minutes       // a number of minutes, or UNLIMITED
	mebibyte      // a number of MiB
	moment        // a number of seconds since 1970
	truth         // true or false
	texts         // a list of texts
)

func (f form) String() string {
	return [...]string{"text", "whole number", "minutes", "MiB", "seconds since 1970", "true or false", "list of texts"}[f]
}

// Member is one member of a job in what the program reads and writes.
type Member struct {
	Name string
	Key  string // of gcontrol update job, by which it is set; "": it is only shown
	form form
	// about is a sentence for the manual page
	about string
	of    func(*model.Spec) any // nil: it is not set
}

// GPUMemory is the key of gpu_mem, which can be set at submission only.
const GPUMemory = "GpuMem"

// Hold is the key of hold.
const Hold = "Hold"

// Members are all of them, in the manual page's order.
var Members = []Member{
	{"name", "JobName", asText, "the job's name", func(s *model.Spec) any { return text(s.Name) }},
	{"account", "Account", asText, "--account", func(s *model.Spec) any { return text(s.Account) }},
	{"partition", "Partition", asText, "--partition, one or several", func(s *model.Spec) any {
		return text(strings.Join(s.Partitions, ","))
	}},
	{"qos", "QOS", asText, "--qos", func(s *model.Spec) any { return text(s.QOS) }},
	{"reservation", "Reservation", asText, "--reservation", func(s *model.Spec) any { return text(s.Reservation) }},
	{"wckey", "WCKey", asText, "--wckey", func(s *model.Spec) any { return text(s.WCKey) }},
	{"comment", "Comment", asText, "--comment", func(s *model.Spec) any { return text(s.Comment) }},
	{"time_limit", "TimeLimit", minutes, "--time", func(s *model.Spec) any { return span(s.LimitS) }},
	{"time_minimum", "TimeMin", minutes, "--time-min", func(s *model.Spec) any { return count(s.Extra().TimeMinS / 60) }},
	{"begin_time", "StartTime", moment, "--begin", func(s *model.Spec) any { return count(s.Begin.Seconds()) }},
	{"deadline", "Deadline", moment, "--deadline", func(s *model.Spec) any { return count(s.Deadline.Seconds()) }},
	{"nodes", "NumNodes", asText, "--nodes, a number or least and most", func(s *model.Spec) any { return nodes(s) }},
	{"tasks", "NumTasks", number, "--ntasks", func(s *model.Spec) any { return count(int64(s.Tasks)) }},
	{"tasks_per_node", "TasksPerNode", number, "--ntasks-per-node", func(s *model.Spec) any {
		return count(int64(s.TasksPerNode))
	}},
	{"cpus_per_task", "CPUsPerTask", number, "--cpus-per-task", func(s *model.Spec) any {
		return count(int64(s.CPUsPerTask))
	}},
	{"minimum_cpus_per_node", "MinCPUsNode", number, "--mincpus", func(s *model.Spec) any {
		return count(int64(s.MinCPUs))
	}},
	{"memory_per_node", "MinMemoryNode", mebibyte, "--mem; 0 is all of a node", func(s *model.Spec) any {
		if s.MemPerNode == model.WholeMem {
			return 0
		}
		return count(s.MemPerNode)
	}},
	{"memory_per_cpu", "MinMemoryCPU", mebibyte, "--mem-per-cpu", func(s *model.Spec) any { return count(s.MemPerCPU) }},
	{"temporary_disk_per_node", "MinTmpDiskNode", mebibyte, "--tmp", func(s *model.Spec) any { return count(s.TmpMiB) }},
	{"tres_per_node", "Gres", asText, "--gres, such as gpu:a100:2", func(s *model.Spec) any {
		return gres(s, model.PerNode)
	}},
	{"tres_per_job", "TresPerJob", asText, "--gpus, as gpu:2", func(s *model.Spec) any { return gres(s, model.PerJob) }},
	{"tres_per_task", "TresPerTask", asText, "--gpus-per-task, as gpu:2", func(s *model.Spec) any {
		return gres(s, model.PerTask)
	}},
	{"gpu_mem", GPUMemory, mebibyte, "--gpu-mem; set at submission only", func(s *model.Spec) any {
		return count(s.Extra().GPUMemMiB)
	}},
	{"licenses", "Licenses", asText, "--licenses", func(s *model.Spec) any { return licenses(s) }},
	{"constraints", "Features", asText, "--constraint", func(s *model.Spec) any { return text(s.Features) }},
	{"prefer", "Prefer", asText, "--prefer", func(s *model.Spec) any { return text(s.Extra().Prefer) }},
	{"contiguous", "Contiguous", truth, "--contiguous", func(s *model.Spec) any { return yes(s.Extra().Contiguous) }},
	{"reboot", "Reboot", truth, "--reboot", func(s *model.Spec) any { return yes(s.Extra().Reboot) }},
	{"sockets_per_node", "ReqSockets", number, "--sockets-per-node", func(s *model.Spec) any {
		return count(int64(s.Extra().Sockets))
	}},
	{"cores_per_socket", "ReqCores", number, "--cores-per-socket", func(s *model.Spec) any {
		return count(int64(s.Extra().CoresPerSocket))
	}},
	{"threads_per_core", "ReqThreads", number, "--threads-per-core", func(s *model.Spec) any {
		return count(int64(s.Extra().ThreadsPerCore))
	}},
	{"required_switches", "Switches", number, "--switches", func(s *model.Spec) any {
		return count(int64(s.Extra().Switches))
	}},
	{"shared", "OverSubscribe", truth, "--oversubscribe; false is --exclusive", func(s *model.Spec) any {
		return yes(s.Extra().Share)
	}},
	{"required_nodes", "ReqNodeList", asText, "--nodelist", func(s *model.Spec) any { return list(s.ReqNodes) }},
	{"excluded_nodes", "ExcNodeList", asText, "--exclude", func(s *model.Spec) any { return list(s.ExcNodes) }},
	{"dependency", "Dependency", asText, "--dependency", func(s *model.Spec) any { return text(s.DepText) }},
	{"nice", "Nice", number, "--nice", func(s *model.Spec) any { return count(int64(s.Nice)) }},
	{"priority", "Priority", number, "--priority", func(s *model.Spec) any { return count(int64(s.PrioReq)) }},
	{"hold", Hold, truth, "--hold; set at submission only", func(s *model.Spec) any { return yes(s.HoldReq) }},
	{"requeue", "Requeue", truth, "--requeue; false for --no-requeue", func(s *model.Spec) any {
		if s.NoRequeue {
			return false
		}
		return yes(s.Requeue)
	}},
	{"mail_type", "MailType", asText, "--mail-type", func(s *model.Spec) any {
		if m := s.Mail(); m != nil {
			return text(m.Types.String())
		}
		return nil
	}},
	{"mail_user", "MailUser", asText, "--mail-user", func(s *model.Spec) any {
		if m := s.Mail(); m != nil {
			return text(m.User)
		}
		return nil
	}},
	{"array_max_tasks", "ArrayTaskThrottle", number, "most tasks of an array that run at once", func(s *model.Spec) any {
		return count(int64(s.Throttle))
	}},
	{"admin_comment", "AdminComment", asText, "set in changes only, by operators", nil},
	{"site_factor", "SiteFactor", number, "set in changes only, by operators", nil},
	{"array", "", asText, "--array", func(s *model.Spec) any { return text(s.ArrayText) }},
	{"exclusive", "", truth, "--exclusive", func(s *model.Spec) any { return yes(s.Exclusive) }},
	{"cron", "", asText, "the times of a crontab's entry: the job comes back", func(s *model.Spec) any {
		if s.Cron == nil {
			return nil
		}
		return text(s.Cron.Times)
	}},
	{"interactive", "", truth, "galloc or grun asks", func(s *model.Spec) any { return yes(s.Extra().Interactive) }},
	{"command", "", asText, "the script's path", func(s *model.Spec) any { return text(s.Command) }},
	{"argv", "", texts, "the script's arguments", func(s *model.Spec) any {
		if len(s.Args) == 0 {
			return nil
		}
		return s.Args
	}},
	{"submit_line", "", asText, "the whole command line", func(s *model.Spec) any { return text(s.Submit) }},
	{"current_working_directory", "WorkDir", asText, "--chdir", func(s *model.Spec) any { return text(s.WorkDir) }},
	{"standard_output", "StdOut", asText, "--output", func(s *model.Spec) any { return text(s.StdOut) }},
	{"standard_error", "StdErr", asText, "--error", func(s *model.Spec) any { return text(s.StdErr) }},
	{"standard_input", "StdIn", asText, "--input", func(s *model.Spec) any { return text(s.StdIn) }},
}

// alike are the other words of keys that gcontrol takes, in small letters.
var alike = map[string]string{"mintime": "TimeMin", "begintime": "StartTime", "eligibletime": "StartTime",
	"partitionname": "Partition", "reservationname": "Reservation", "minnodes": "NumNodes", "reqnodes": "NumNodes",
	"nodelist": "ReqNodeList", "name": "JobName", "shared": "OverSubscribe", "reqswitch": "Switches",
	"trespernode": "Gres", "cpus/task": "CPUsPerTask"}

// named gives the member with a name, or nil.
func named(name string) *Member {
	for i := range Members {
		if Members[i].Name == name {
			return &Members[i]
		}
	}
	return nil
}

// keyed gives the member that a key of gcontrol sets, or nil.
func keyed(key string) *Member {
	if other := alike[strings.ToLower(key)]; other != "" {
		key = other
	}
	for i := range Members {
		if m := &Members[i]; m.Key != "" && strings.EqualFold(m.Key, key) {
			return m
		}
	}
	return nil
}

// SameKey reports whether two keys of gcontrol set the same member.
func SameKey(a, b string) bool {
	m := keyed(a)
	return strings.EqualFold(a, b) || m != nil && m == keyed(b)
}

// What a member shows: nil for what was not asked for.

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func count(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func yes(b bool) any {
	if !b {
		return nil
	}
	return true
}

func span(s int64) any {
	switch {
	case s == model.NotSet:
		return nil
	case s >= model.Unlimited:
		return "UNLIMITED"
	}
	return (s + 59) / 60
}

func list(names []string) any {
	if len(names) == 0 {
		return nil
	}
	return hostlist.CompressInOrder(names)
}

func nodes(s *model.Spec) any {
	switch {
	case s.MinNodes == 0 && s.MaxNodes == 0:
		return nil
	case s.MaxNodes == 0 || s.MaxNodes == s.MinNodes:
		return strconv.Itoa(int(s.MinNodes))
	}
	return strconv.Itoa(int(s.MinNodes)) + "-" + strconv.Itoa(int(s.MaxNodes))
}

func gres(s *model.Spec, per model.GresPer) any {
	var out []string
	for i := range s.Gres {
		g := &s.Gres[i]
		if g.Per != per {
			continue
		}
		words := []string{g.Name}
		if g.Type != "" {
			words = append(words, g.Type)
		}
		if g.Milli > 0 {
			words = append(words, strconv.FormatFloat(float64(g.Milli)/1000, 'f', -1, 64))
		} else {
			words = append(words, strconv.Itoa(int(g.Count)))
		}
		out = append(out, strings.Join(words, ":"))
	}
	return text(strings.Join(out, ","))
}

func licenses(s *model.Spec) any {
	m := s.Extra()
	return text(ask.LicensesText(m.Licenses, m.AnyLicense))
}
