package manage

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// jobConditions and jobSettings are the keys of modify job. newKey is Slurm's word for WCKey among the settings.
var (
	jobConditions = []string{"jobids", "clusters", "users", "starttime", "endtime", "wckeys"}
	jobSettings   = []string{model.NotedComment, model.NotedAdmin, model.NotedSystem, model.NotedExtra,
		model.NotedExitCode, model.NotedWCKey, newKey}
)

const newKey = "NewWCKey"

// keyOf finds the one of the words that a key begins; "": none.
func keyOf(key string, words []string) string {
	for _, w := range words {
		if key != "" && len(key) <= len(w) && strings.EqualFold(w[:len(key)], key) {
			return w
		}
	}
	return ""
}

// conditionOf finds the condition that a key begins; "": none.
func conditionOf(key string) string { return keyOf(key, jobConditions) }

// modifyJob changes records of jobs that have ended, and comments of those that have not; jobstats sets AdminComment
// this way.
func (m *manage) modifyJob(c *client.Client, words []string) error {
	rq := proto.UpdateJobRequest{Action: proto.ActRecord, Records: &proto.AcctRequest{}}
	set := false
	for i, w := range words {
		key, value, ok := strings.Cut(w, "=")
		var err error
		switch {
		case !ok && (strings.EqualFold(key, "where") || strings.EqualFold(key, "set")):
			set = strings.EqualFold(key, "set")
		case !ok && i == 0 && !set: // a word without a key is the jobs
			err = jobCondition(rq.Records, "jobids", w)
		case set:
			err = jobSetting(&rq, key, value)
		case conditionOf(key) == "clusters":
			err = m.CheckClusters(c, env.SplitList(value))
		default:
			err = jobCondition(rq.Records, key, value)
		}
		if err != nil {
			return err
		}
	}
	if len(rq.Records.Jobs)+len(rq.Records.Users)+len(rq.Records.WCKeys) == 0 || len(rq.Set) == 0 {
		return errors.New(" Name jobs and what to set: gacctmgr modify job where jobid=7 set AdminComment=TEXT")
	}
	if m.readOnly {
		return errors.New("Can't run this command in readonly mode.")
	}
	var reply proto.TargetsReply
	if err := c.Call(proto.KindUpdateJob, &rq, &reply); err != nil {
		return err
	}
	var failed error
	said := m.quiet
	for _, r := range reply.Results {
		if r.Code != 0 {
			failed = errors.New(" Error with request: " + r.Text)
			continue
		}
		if !said {
			fmt.Fprintln(m.Stdout, " Modified jobs...")
			said = true
		}
		if !m.quiet {
			fmt.Fprintf(m.Stdout, "  %s\n", jobtext.RefText(r.Ref))
		}
	}
	return failed
}

// jobCondition reads a word that picks jobs.
func jobCondition(rq *proto.AcctRequest, key, value string) (err error) {
	switch conditionOf(key) {
	case "jobids":
		refs, err := env.ParseJobRefs(value)
		rq.Jobs = append(rq.Jobs, refs...)
		return err
	case "clusters": // the caller has checked it
	case "users":
		for _, name := range env.SplitList(value) {
			uid, err := env.UIDOf(name)
			if err != nil {
				return errors.New(" Invalid user: " + name)
			}
			rq.Users = append(rq.Users, uid)
		}
	case "starttime":
		rq.Start, err = pastMoment(value)
	case "endtime":
		rq.End, err = pastMoment(value)
	case "wckeys":
		rq.WCKeys = append(rq.WCKeys, env.SplitList(value)...)
	default:
		return fmt.Errorf(" Unknown condition: %s\n Name jobs with jobid=, user=, wckey=, starttime= and endtime=", key)
	}
	return err
}

// pastMoment reads a moment of the past.
func pastMoment(value string) (model.Time, error) {
	t, err := walltime.ParsePastDate(value, time.Now())
	if err != nil {
		return 0, fmt.Errorf(" Invalid time: %w", err)
	}
	return model.Time(t.UnixMilli()), nil
}

// jobSetting reads a word that says what to change.
func jobSetting(rq *proto.UpdateJobRequest, key, value string) error {
	name := keyOf(key, jobSettings)
	switch name {
	case "":
		return fmt.Errorf(" Unknown option: %s\n Of a job's record %s can be changed", key,
			strings.Join(jobSettings, ", "))
	case newKey:
		name = model.NotedWCKey
	}
	rq.Set = append(rq.Set, model.KV{Key: name, Value: value})
	return nil
}
