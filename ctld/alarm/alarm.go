package alarm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/plain"
)

// Alert is one call.
type Alert struct {
	Event, Level string
	Gres         string // gpu:3; "" for nodes
	Reason       string
	Nodes        []string
	Daemon       string // which one, in words, or which limit, or whose money; "": it is about nodes
	Jobs         int    // jobs with resources there, or under the limit
}

// Environ gives the variables of a call at some second.
func (a *Alert) Environ(second int64) []string {
	daemon, limit := a.Daemon, ""
	if strings.HasPrefix(a.Event, "usage_") {
		daemon, limit = "", a.Daemon
	}
	return []string{"GBATCH_ALERT=" + a.Event, "GBATCH_ALERT_LEVEL=" + a.Level,
		"GBATCH_ALERT_NODES=" + hostlist.Compress(a.Nodes), "GBATCH_ALERT_GRES=" + a.Gres,
		"GBATCH_ALERT_REASON=" + plain.Line(a.Reason), "GBATCH_ALERT_DAEMON=" + daemon,
		"GBATCH_ALERT_LIMIT=" + limit,
		"GBATCH_ALERT_JOBS=" + strconv.Itoa(a.Jobs), "GBATCH_ALERT_TIME=" + strconv.FormatInt(second, 10)}
}

// Sentence gives the alert in words.
func (a *Alert) Sentence() string {
	if a.Daemon != "" {
		text := a.Daemon + " " + troubleText(a.Event)
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		return text
	}
	who := "node " + hostlist.Compress(a.Nodes)
	if a.Gres != "" {
		who = a.Gres + " of " + who
	}
	text := who + " is " + nodeWords[a.Event]
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	if a.Jobs > 0 {
		text += fmt.Sprintf(" (%d jobs had resources there)", a.Jobs)
	}
	return text
}

// nodeWords say what a node or a GPU is.
var nodeWords = map[string]string{"node_down": "down", "node_drained": "drained", "node_back": "back in service",
	"gpu_fault": "out of service", "gpu_unrecoverable": "broken, and could not be recovered",
	"gpu_drained": "drained", "gpu_foreign_use": "in use by processes that no job started",
	"gpu_back": "back in service"}

// Overs are the events of troubles and of their ends.
var Overs = map[string]string{"controller_lost": "controller_back", "dbd_lost": "dbd_back",
	"records_waiting": "records_sent", "records_discarded": "records_kept", "disk_full": "disk_ok",
	"disk_slow": "disk_fast", "disk_broken": "disk_mended", "certificate_expires": "certificate_renewed",
	"records_refused": "records_removed", "scheduler_stuck": "scheduler_back",
	"usage_near_limit": "usage_below_limit"}

// troubleText gives what happened to a daemon.
func troubleText(event string) string {
	return cmp.Or(map[string]string{"controller_lost": "is lost", "controller_back": "is back",
		"dbd_lost": "takes no records", "dbd_back": "takes records again",
		"records_waiting": "has many records waiting for it", "records_sent": "has few records waiting for it again",
		"records_discarded": "loses records", "records_kept": "loses no more records",
		"records_refused": "keeps records that gdbd refuses", "records_removed": "keeps no more records that gdbd refuses",
		"disk_full": "has a disk with little or no room left", "disk_ok": "has room on its disk again",
		"disk_slow": "has a slow disk", "disk_fast": "has a fast disk again",
		"disk_broken": "has a disk that can't be written", "disk_mended": "has a disk that can be written again",
		"certificate_expires": "has a certificate that expires", "certificate_renewed": "has a certificate that is valid " +
			"for long",
		"usage_near_limit": "is near its limit", "usage_below_limit": "is no longer near its limit",
		"scheduler_stuck": "completes no pass", "scheduler_back": "completes passes again"}[event], event)
}
