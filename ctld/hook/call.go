package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// The actions that a program is asked about.
const (
	Submit = "submit"
	Modify = "modify"
)

// Bounds of an answer.
const (
	maxSet      = 64      // members and variables
	maxValue    = 4 << 10 // bytes of one
	maxMessage  = 1 << 10 // bytes of a message or a refusal
	maxEnvValue = 64 << 10
)

// Call is what the program is asked about.
type Call struct {
	Action   string
	Cluster  string
	User     string // who asks
	UID, GID uint32
	Group    string
	Groups   []uint32
	Host     string
	Operator bool
	Account  string // the user's default one

	Job      model.JobID // of a change
	JobText  string      // its number as users write it
	Owner    string      // of the job
	Spec     *model.Spec
	Changes  []model.KV // what the user wants to change
	Script   []byte     // of a submission
	Env      []byte     // NAME=value, each ended by a NUL
	TestOnly bool
	Part     int // of a heterogeneous job: the component's number; -1: it is none
}

// Answer is what the program said.
type Answer struct {
	Set     []model.KV // by gcontrol's keys, in the order of the names of members
	Env     []EnvChange
	Message string // for the user
	Refuse  string // why the job or the change is refused; "": it is not
}

// EnvChange is one variable of a job's environment.
type EnvChange struct {
	Name, Value string
	Unset       bool
}

// input writes what the program reads.
func (c *Call) input(limitS int64) ([]byte, error) {
	job := map[string]any{}
	for i := range Members {
		if m := &Members[i]; m.of != nil {
			if v := m.of(c.Spec); v != nil {
				job[m.Name] = v
			}
		}
	}
	out := map[string]any{"version": 1, "action": c.Action, "cluster": c.Cluster, "time_limit": limitS, "job": job,
		"user": map[string]any{"name": c.User, "uid": c.UID, "gid": c.GID, "group": c.Group, "gids": c.Groups,
			"host": c.Host, "operator": c.Operator, "default_account": c.Account}}
	if c.Action == Modify {
		changes := map[string]any{}
		for _, kv := range c.Changes {
			name, value := kv.Key, any(kv.Value)
			if m := keyed(kv.Key); m != nil {
				name = m.Name
				if t, ok := ask.ParseMoment(kv.Value); ok && m.form == moment {
					value = t.Seconds()
				}
			}
			changes[name] = value
		}
		out["changes"], out["job_id"], out["job_name"], out["owner"] = changes, c.Job, c.JobText, c.Owner
	} else {
		env := map[string]string{}
		for kv := range bytes.SplitSeq(c.Env, []byte{0}) {
			if name, value, ok := strings.Cut(string(kv), "="); ok {
				env[name] = value
			}
		}
		out["script"], out["environment"], out["test_only"] = string(c.Script), env, c.TestOnly
		if c.Part >= 0 {
			out["het_job_offset"] = c.Part
		}
	}
	return json.Marshal(out)
}

// read reads the program's answer to a call. Nothing is no change.
func read(action string, data []byte) (*Answer, error) {
	a := &Answer{}
	if len(bytes.TrimSpace(data)) == 0 {
		return a, nil
	}
	var raw struct {
		Set         map[string]any     `json:"set"`
		Environment map[string]*string `json:"environment"`
		Message     string             `json:"message"`
		Refuse      *string            `json:"refuse"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("its answer is not the JSON of gbatch-hooks(7): %w", err)
	}
	if d.More() {
		return nil, errors.New("its answer is more than one JSON value")
	}
	if len(raw.Set) > maxSet || len(raw.Environment) > maxSet {
		return nil, fmt.Errorf("its answer sets more than %d members or variables", maxSet)
	}
	if raw.Refuse != nil {
		if a.Refuse = sentence(*raw.Refuse); a.Refuse == "" {
			a.Refuse = "the site refuses it, and gives no reason"
		}
	}
	a.Message = sentence(raw.Message)
	for _, name := range slices.Sorted(maps.Keys(raw.Set)) {
		kv, err := setting(action, name, raw.Set[name])
		if err != nil {
			return nil, err
		}
		a.Set = append(a.Set, kv)
	}
	if len(raw.Environment) > 0 && action != Submit {
		return nil, errors.New("its answer sets the environment of a job that has been submitted")
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Environment)) {
		e := EnvChange{Name: name, Unset: raw.Environment[name] == nil}
		if !e.Unset {
			e.Value = *raw.Environment[name]
		}
		if name == "" || len(name) > model.MaxName || strings.ContainsAny(name, "=\x00") ||
			strings.ContainsRune(e.Value, 0) || len(e.Value) > maxEnvValue {
			return nil, fmt.Errorf("its answer sets a variable %q that can't be, or is over %d bytes long", name, maxEnvValue)
		}
		a.Env = append(a.Env, e)
	}
	return a, nil
}

// setting makes a key and a value of a member.
func setting(action, name string, value any) (model.KV, error) {
	m := named(name)
	switch {
	case m == nil:
		return model.KV{}, fmt.Errorf("its answer sets %q, which is no member of a job; gbatch-hooks(7) has them all", name)
	case m.Key == "":
		return model.KV{}, fmt.Errorf("its answer sets %s, which can't be changed", name)
	case m.of == nil && action == Submit:
		return model.KV{}, fmt.Errorf("its answer sets %s, which can be set in changes only", name)
	case (m.Key == GPUMemory || m.Key == Hold) && action == Modify:
		return model.KV{}, fmt.Errorf("its answer sets %s, which can be set at submission only", name)
	}
	v, err := m.written(value)
	if err != nil {
		return model.KV{}, fmt.Errorf("its answer sets %s to %v: %w", name, value, err)
	}
	if len(v) > maxValue {
		return model.KV{}, fmt.Errorf("its answer sets %s to more than %d bytes", name, maxValue)
	}
	return model.KV{Key: m.Key, Value: v}, nil
}

// written gives a value in the words of gcontrol update job.
func (m *Member) written(value any) (string, error) {
	switch v := value.(type) {
	case string:
		if m.form == moment || m.form == truth {
			return "", fmt.Errorf("write it as %s", m.form)
		}
		return v, nil
	case bool:
		if m.form != truth {
			return "", fmt.Errorf("write it as %s", m.form)
		}
		if v {
			return "1", nil
		}
		return "0", nil
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 64)
		switch {
		case err != nil || m.form == truth:
			return "", fmt.Errorf("write it as %s", m.form)
		case m.form == moment && n > maxSeconds:
			return "", fmt.Errorf("write it as %s", m.form)
		case m.form == moment:
			return ask.MomentText(model.Time(n * 1000)), nil
		case m.form == mebibyte:
			return v.String() + "M", nil
		}
		return v.String(), nil
	}
	return "", fmt.Errorf("write it as %s", m.form)
}

// maxSeconds is the last moment, the year 9999.
const maxSeconds = 253402300799

// sentence makes one printable, bounded paragraph of a program's words.
func sentence(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "?"))
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}
