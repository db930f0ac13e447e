package rest

import (
	"errors"
	"net/http"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// fault is an error as Slurm's REST writes it: a number with its name's words, and what exactly is wrong.
type fault struct {
	Number int
	Text   string // Slurm's words for the number
	Detail string
	Source string
	Status int // of HTTP
}

func (f *fault) Error() string { return f.Text + ": " + f.Detail }

// Slurm's numbers of errors, by their meaning (slurm_errno.h).
const (
	errAuthentication = 1007
	errUnexpected     = 1000
	errConnection     = 1800
	errBadJob         = 2017
	errAccess         = 2002
	errNoScript       = 2009
	errNotSupported   = 2036
	errNoEnvironment  = 2127
	errBadNode        = 2018
	errBadPartition   = 2000
	errQuery          = 9000
	errParse          = 9001
	errEmpty          = 9003
	errMethod         = 9007
	errConversion     = 9202
	errNoAccounting   = 7000
)

// words are Slurm's for numbers that the cluster has no code for.
var words = map[int]string{
	errAuthentication: "Protocol authentication error", errUnexpected: "Unexpected message received",
	errConnection: "Unable to contact slurm controller (connect failure)", errNoScript: "Batch job script missing",
	errNotSupported:  "Requested operation not supported on this system",
	errNoEnvironment: "Batch job environment missing",
	errQuery:         "Query empty or not RFC7320 compliant", errParse: "Failure parsing request body",
	errEmpty: "Nothing found with query", errMethod: "Unknown URL method for URL path requested",
	errConversion: "Unable to convert value to type", errNoAccounting: "Unable to connect to database",
	2027: "Slurm backend responding in standby mode", 2042: "Job is held", 2090: "Slurm internal error",
}

// unsupported refuses a member or operation that is not there, and says what to use.
func unsupported(format string) *fault {
	return &fault{Number: errNotSupported, Detail: format, Status: http.StatusUnprocessableEntity}
}

// asFault makes Slurm's error of what went wrong.
func asFault(err error, source string) *fault {
	var f *fault
	var said *rpc.Error
	switch {
	case errors.As(err, &f):
		if f.Source == "" {
			f.Source = source
		}
	case errors.As(err, &said):
		f = &fault{Number: proto.ErrorNumbers[said.Code], Text: proto.Text(said.Code), Detail: said.Text, Source: source,
			Status: statusOf(said.Code)}
		switch said.Code {
		case rpc.CodeBusy, proto.CodeBusy:
			f.Number = 1801
			f.Text = "Controller is busy"
		case rpc.CodeTooLarge:
			f.Number, f.Text = 9205, "Data is too large"
		}
		if f.Number == 0 {
			f.Number = errUnexpected
		}
	default:
		f = &fault{Number: -1, Text: "Unspecified error", Detail: err.Error(), Source: source,
			Status: http.StatusInternalServerError}
	}
	if f.Text == "" {
		f.Text = words[f.Number]
	}
	if f.Status == 0 {
		f.Status = http.StatusUnprocessableEntity
	}
	return f
}

// statusOf gives HTTP's status for the cluster's codes.
func statusOf(c proto.Code) int {
	switch c {
	case proto.CodeInvalidJob:
		return http.StatusNotFound
	case proto.CodeAccess, proto.CodeNotHere:
		return http.StatusForbidden
	case proto.CodeNoController, proto.CodeNotLeader, proto.CodeNoAccounting:
		return http.StatusBadGateway
	case proto.CodeUnknown, proto.CodeBegun:
		return http.StatusGatewayTimeout
	case proto.CodeBusy, rpc.CodeBusy:
		return http.StatusServiceUnavailable
	case rpc.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case proto.CodeInternal, rpc.CodeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusUnprocessableEntity
}

// rpcError is what went wrong with one target.
func rpcError(r *proto.TargetResult) error { return &rpc.Error{Code: r.Code, Text: r.Text} }
