package greshelper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gbatch/internal/plain"
)

// Bounds of what a helper answers.
const (
	maxAnswer = 64 << 10 // bytes of its line
	maxVars   = 64
	maxValue  = 4 << 10
	maxSaid   = 1 << 10 // of a sentence, or of what it wrote to standard error
	maxStart  = 1 << 20 // of the line about the job
)

// Start is the line that a helper reads.
type Start struct {
	Version   int    `json:"version"`
	Event     string `json:"event"` // start
	Cluster   string `json:"cluster"`
	Node      string `json:"node"`
	Job       uint32 `json:"job_id"`
	Attempt   uint32 `json:"attempt"`
	ArrayJob  uint32 `json:"array_job_id,omitempty"`
	ArrayTask *int32 `json:"array_task_id,omitempty"`
	UID       uint32 `json:"uid"`
	GID       uint32 `json:"gid"`
	User      string `json:"user"`
	Account   string `json:"account"`
	Partition string `json:"partition"`
	Name      string `json:"job_name"`
	Gres      string `json:"gres"` // gpu
	Type      string `json:"type"` // remote
	Units     []Unit `json:"units"`
	LimitS    int64  `json:"time_limit"` // for the answer, seconds
}

// Unit is one remote GPU of the job on this node.
type Unit struct {
	Index    int    `json:"index"`
	Endpoint string `json:"endpoint"` // host:port; "" if gres.conf names none
}

// Answer is what a helper answers: variables, or why the job can't begin.
type Answer struct {
	Env    []string // NAME=value, in order of name
	Refuse string   // it is the job's fault: the job has failed
}

// variable reports whether a word can be the name of a variable.
func variable(name string) bool {
	for i := range len(name) {
		ch := name[i] | 0x20
		if letter := ch >= 'a' && ch <= 'z' || name[i] == '_'; !letter && (i == 0 || name[i] < '0' || name[i] > '9') {
			return false
		}
	}
	return name != ""
}

// parse reads a helper's line. taken are variables that only gnoded sets.
func parse(line []byte, taken []string) (*Answer, error) {
	var raw struct {
		Env    map[string]string `json:"env"`
		Error  *string           `json:"error"`
		Refuse *string           `json:"refuse"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("its answer is not the JSON of gbatch-hooks(7): %w", err)
	}
	switch {
	case d.More():
		return nil, errors.New("its answer is more than one JSON value")
	case raw.Error != nil:
		return nil, fmt.Errorf("it says: %s", sentence(*raw.Error))
	case raw.Refuse != nil:
		return &Answer{Refuse: sentence(*raw.Refuse)}, nil
	case raw.Env == nil:
		return nil, errors.New("its answer has neither env nor error nor refuse")
	case len(raw.Env) > maxVars:
		return nil, fmt.Errorf("its answer sets %d variables, at most %d are allowed", len(raw.Env), maxVars)
	}
	a := &Answer{}
	for _, name := range slices.Sorted(maps.Keys(raw.Env)) {
		value := raw.Env[name]
		switch {
		case !variable(name) || len(name) > maxSaid:
			return nil, fmt.Errorf("its answer sets %.80q, which is no name of a variable", name)
		case strings.HasPrefix(name, "SLURM") || slices.Contains(taken, name):
			return nil, fmt.Errorf("its answer sets %s, which only gnoded sets", name)
		case len(value) > maxValue || plain.Line(value) != value:
			return nil, fmt.Errorf("its answer sets %s to something that is no line of up to %d bytes", name, maxValue)
		}
		a.Env = append(a.Env, name+"="+value)
	}
	return a, nil
}

// sentence makes one printable, bounded line of a program's words.
func sentence(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "?"))
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + "..."
	}
	if s == "" {
		return "(no reason is given)"
	}
	return plain.Line(s)
}

// word is what a keeper tells gnoded.
type word struct {
	Answer []byte `json:"answer,omitempty"` // the helper's line
	Fault  string `json:"fault,omitempty"`  // why there is none
	Said   string `json:"said,omitempty"`   // what the helper wrote to standard error
}

// read takes a keeper's word.
func (w *word) read(taken []string) (*Answer, error) {
	var a *Answer
	err := errors.New(sentence(w.Fault))
	if w.Fault == "" {
		a, err = parse(w.Answer, taken)
	}
	if err != nil && strings.TrimSpace(w.Said) != "" {
		err = fmt.Errorf("%w; it wrote: %s", err, sentence(w.Said))
	}
	return a, err
}
