package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/conf/locate"
	"gbatch/internal/plain"
)

// filter.go runs CliFilterProgram: a program of the site that sees the options of a command that submits a job, runs as
// the user, and may change or refuse them. gbatch-hooks(7) has its JSON.

const (
	filterLimit  = 10 * time.Second
	filterAnswer = 256 << 10 // bytes of an answer
)

// Filter shows the options of each component of a job to the site's program, if there is one, and takes over what it
// sets. It is called when all options are read and none is applied. command is gsubmit, galloc or grun.
func (e *Env) Filter(command string, parsers []*getopt.Parser, operands []string) error {
	dir, program, err := locate.ForSubmitters(e.Getenv)
	if err != nil {
		return nil // whoever asks the cluster says so
	}
	if e.socketDir = dir; program == "" {
		return nil
	}
	for i, p := range parsers {
		part := -1
		if len(parsers) > 1 {
			part = i
		}
		if err := e.filter(program, command, part, p, operands); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) filter(program, command string, part int, p *getopt.Parser, operands []string) error {
	options := map[string]any{}
	for _, d := range p.Defined() {
		options[d.Name] = d.Value
	}
	call := map[string]any{"version": 1, "command": command, "called_as": e.Program, "options": options,
		"arguments": operands}
	if part >= 0 {
		call["het_job_offset"] = part
	}
	in, err := json.Marshal(call)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), filterLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stderr = e.Environ, e.Dir, bytes.NewReader(in), e.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	out := &head{}
	cmd.Stdout = out
	err = cmd.Run()
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%s: error: the site's CliFilterProgram %s %s; tell an administrator", e.Program, program,
			fmt.Sprintf(format, a...))
	}
	switch {
	case ctx.Err() != nil:
		return fail("has not answered within %s", filterLimit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return fail("failed: %v", err)
	case out.over:
		return fail("answered with more than %d bytes", filterAnswer)
	case len(bytes.TrimSpace(out.data)) == 0:
		return nil
	}
	var a struct {
		Options map[string]string `json:"options"`
		Message string            `json:"message"`
		Refuse  *string           `json:"refuse"`
	}
	d := json.NewDecoder(bytes.NewReader(out.data))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return fail("gave no answer as in gbatch-hooks(7): %v", err)
	}
	if a.Message != "" {
		fmt.Fprintf(e.Stderr, "%s: %s\n", e.Program, plain.Lines(a.Message))
	}
	if a.Refuse != nil {
		return fmt.Errorf("%s: error: %s", e.Program, plain.Lines(*a.Refuse))
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(a.Options)) {
		word := "--" + name
		if v := a.Options[name]; v != "set" && v != "" {
			word += "=" + v
		}
		words = append(words, word)
	}
	return p.Override(words, "CliFilterProgram")
}

// head keeps the beginning of what is written to it.
type head struct {
	data []byte
	over bool
}

func (h *head) Write(p []byte) (int, error) {
	room := filterAnswer - len(h.data)
	h.over = h.over || len(p) > room
	h.data = append(h.data, p[:min(room, len(p))]...)
	return len(p), nil
}
