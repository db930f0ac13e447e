package model

import "strings"

// This file owns what Slurm's tools print behind ReqNodeNotAvail. The planner writes one of these as a job's Why.

const (
	WhyMaintenance = "Reserved for maintenance"
	WhyOthers      = "May be reserved for other job"

	unavailablePrefix = "UnavailableNodes:"
)

// WhyUnavailable says that a node that the job asks for takes no jobs.
func WhyUnavailable(node string) string { return unavailablePrefix + node }

// UnavailableNode gives the node of WhyUnavailable.
func UnavailableNode(why string) (node string, ok bool) { return strings.CutPrefix(why, unavailablePrefix) }

// NotAvailText gives what is shown behind ReqNodeNotAvail, or "".
func (j *Job) NotAvailText() string {
	if j.Reason != ReasonReqNodeNotAvail {
		return ""
	}
	if _, ok := UnavailableNode(j.Why); ok || j.Why == WhyMaintenance || j.Why == WhyOthers {
		return j.Why
	}
	return "" // a sentence of another kind: --why has it
}
