package request

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/proto"
)

// New turns the options into the message for the controller.
func New(e *env.Env, s *Submission, body []byte) (*proto.SubmitRequest, error) {
	sp := &s.Spec
	sp.WorkDir = e.Dir
	if s.Chdir != "" {
		sp.WorkDir = s.Chdir
		if !filepath.IsAbs(sp.WorkDir) {
			sp.WorkDir = filepath.Join(e.Dir, sp.WorkDir)
		}
		sp.WorkDir = filepath.Clean(sp.WorkDir)
	}
	sp.Append = s.openMode == "a"
	sp.Submit = e.Program
	for _, a := range e.Args {
		sp.Submit += " " + a
	}
	if len(sp.Submit) > proto.MaxFieldBytes {
		sp.Submit = sp.Submit[:proto.MaxFieldBytes]
	}
	old := unix.Umask(0)
	unix.Umask(old)
	sp.Umask = uint32(old)
	if err := s.settle(); err != nil {
		return nil, err
	}
	var err error
	if sp.Limits, err = ResourceLimits(s.limits); err != nil {
		return nil, err
	}
	env, err := Environment(e, s)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	if _, err := unix.Getrandom(id[:], 0); err != nil {
		return nil, fmt.Errorf("draw a request id: %w", err)
	}
	return &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp, Script: body, Env: env,
		TestOnly: s.TestOnly}, nil
}

// settle completes the request once all options are known.
func (s *Submission) settle() error {
	if s.noKill && max(s.Spec.MinNodes, s.Spec.MaxNodes) > 1 {
		s.Remarks = append(s.Remarks, "--no-kill has no effect in gbatch: a job of several nodes ends, or is put back into the "+
			"queue (--requeue), when one of them fails")
	}
	if s.mail.Types != 0 {
		s.More.Mail = &s.mail
	}
	return s.Settle()
}

// ToStart says when and where a job of --test-only could start, in sbatch's words.
func ToStart(r *proto.SubmitReply) string {
	job := ""
	if r.Job != 0 { // an older controller gives none
		job = fmt.Sprintf("%d ", r.Job)
	}
	return fmt.Sprintf("Job %sto start at %s using %d processors on nodes %s in partition %s", job,
		time.UnixMilli(int64(r.TestStart)).Format("2006-01-02T15:04:05"), r.TestCPUs, r.TestNodes, r.TestPart)
}

// NoHet gives the refusal of a heterogeneous job, which word has requested.
func NoHet(word string) string {
	return "heterogeneous jobs (" + word +
		") are not supported by gbatch yet; submit the parts as jobs of their own, joined with --dependency"
}
