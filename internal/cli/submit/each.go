package submit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/request"
	"gbatch/internal/cli/script"
	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// Limits of gsubmit --each.
const (
	maxEachLines     = 1_000_000 // jobs of one call; the cluster's MaxJobCount is usually smaller
	maxEachLine      = 64 << 10  // bytes of a line: half of the kernel's limit for one argument
	maxEachFile      = 256 << 20 // bytes of all lines
	eachRequestBytes = 1 << 20   // arguments in one request
)

// eachLine is one job of --each.
type eachLine struct {
	number int // in the file, from 1
	args   []string
	bytes  int
}

// eachLines reads the lines of --each, and checks all before a job is submitted. It skips empty lines and those that
// begin with #.
func eachLines(e *env.Env, s *request.Submission) ([]eachLine, error) {
	if s.Each == "" {
		return nil, nil
	}
	var in io.Reader = e.Stdin
	what := "--each=" + s.Each
	if s.Each != "-" {
		path := s.Each
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.Dir, path)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, errors.Unwrap(err))
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	lines := bufio.NewScanner(io.LimitReader(in, maxEachFile+1))
	lines.Buffer(nil, maxEachLine)
	var out []eachLine
	total := 0
	for n := 1; lines.Scan(); n++ {
		raw := bytes.TrimSpace(lines.Bytes())
		total += len(lines.Bytes()) + 1
		switch {
		case total > maxEachFile:
			return nil, fmt.Errorf("%s is longer than %d bytes: split it", what, maxEachFile)
		case len(raw) == 0 || raw[0] == '#':
			continue
		case len(out) == maxEachLines:
			return nil, fmt.Errorf("%s has more than %d lines: split it", what, maxEachLines)
		case bytes.IndexByte(raw, 0) >= 0:
			return nil, fmt.Errorf("%s line %d contains a NUL byte: a line holds the arguments of one job, with blanks between",
				what, n)
		}
		args, err := script.Words(string(raw))
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", what, n, err)
		}
		out = append(out, eachLine{n, args, len(raw)})
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%s: the line after line %d is longer than %d bytes", what, lastLine(out), maxEachLine)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case len(out) == 0:
		return nil, fmt.Errorf("%s has no line with arguments, so there is no job to submit", what)
	}
	return out, nil
}

func lastLine(lines []eachLine) int {
	if len(lines) == 0 {
		return 0
	}
	return lines[len(lines)-1].number
}

// submitEach submits a job for each line, many with one request. It prints submitted jobs before errors.
func submitEach(e *env.Env, c *client.Client, s *request.Submission, rq *proto.SubmitRequest,
	lines []eachLine) (int, error) {
	base := rq.RequestID
	var jobs []model.JobID
	for part := 0; len(jobs) < len(lines); part++ {
		rq.RequestID = base + "-" + strconv.Itoa(part)
		ask := &proto.SubmitEachRequest{Submit: rq}
		size := 0
		for _, l := range lines[len(jobs):] {
			if len(ask.Args) == proto.MaxEachJobs || size > eachRequestBytes {
				break
			}
			ask.Args = append(ask.Args, l.args)
			size += l.bytes
		}
		var reply proto.SubmitEachReply
		if err := c.Call(proto.KindSubmitEach, ask, &reply); err != nil {
			return 1, eachStopped(e, s, lines, len(jobs), err, false)
		}
		if part == 0 {
			notes(e, s, reply.Notes)
		}
		for _, id := range reply.Jobs {
			submitted(e, s, id, reply.Cluster)
		}
		if err := e.Flush(); err != nil { // a user who interrupts this command sees the submitted jobs
			return 1, err
		}
		jobs = append(jobs, reply.Jobs...)
		if reply.Refused != "" {
			return 1, eachStopped(e, s, lines, len(jobs), rpc.Errorf(reply.Code, "%s", reply.Refused), true)
		}
	}
	worst := 0
	for _, id := range jobs {
		if !s.Wait {
			break
		}
		rc, err := await(e, c, id)
		if err != nil {
			return rc, err
		}
		worst = max(worst, rc)
	}
	return worst, nil
}

// eachStopped names the line that was not accepted, and how to continue there. own: the error is about this line, not
// about options of all lines.
func eachStopped(e *env.Env, s *request.Submission, lines []eachLine, done int, err error, own bool) error {
	line := lines[done].number
	where := ""
	if done > 0 || own {
		where = fmt.Sprintf("--each line %d: ", line)
	}
	stopped := refused(e, s, err, where)
	switch env.Code(err) {
	case proto.CodeNoController, proto.CodeNotLeader, proto.CodeBusy, proto.CodeUnknown:
		return fmt.Errorf("%w\n%s: error: %d of %d jobs were submitted; whether those from line %d on were is not known, "+
			"since no answer came: see gqueue --me",
			stopped, e.Program, done, len(lines), line)
	}
	if done == 0 {
		return fmt.Errorf("%w\n%s: error: no job was submitted", stopped, e.Program)
	}
	from := s.Each
	if from == "-" {
		from = "FILE"
	}
	return fmt.Errorf("%w\n%s: error: %d of %d jobs were submitted; to go on with the others: tail -n +%d %s "+
		"| %s --each=- ...",
		stopped, e.Program, done, len(lines), line, from, e.Program)
}
