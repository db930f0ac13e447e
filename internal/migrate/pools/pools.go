package pools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/migrate"
)

// Limits of what is read.
const (
	MaxBytes     = 1 << 20
	maxDocuments = 1000
	maxEntries   = 1000    // of one list
	maxCount     = 1 << 40 // of one resource
	maxName      = 64
)

// What a step makes.
const (
	QOS         = "qos"
	Account     = "account"
	Partition   = "partition"
	Reservation = "reservation"
)

// Step makes one record, or sets these of its settings. It is what an administrator would type.
type Step struct {
	What, Name string
	New        []string // KEY=VALUE words that count when it is made only
	Set        []string // those that count in any case
	Pool       string   // of an account: Set are its limits in this partition
	GPUs       int64    // of a partition: how many it should have; 0: nobody says
	File, Key  string   // where it is from, for the report
	Line       int
}

// Job is a script.
type Job struct{ Name, Script string }

// Wanted is what a file asks for. Steps that others need come first.
type Wanted struct {
	Steps []Step
	Jobs  []Job

	Guarantees, Limits bool // whether there are any: they need settings in gbatch.conf
}

// reading is one document that is being read.
type reading struct {
	w    *Wanted
	r    *migrate.Report
	file string
	line int
	name string // kind and name
}

func (in *reading) add(kind migrate.Kind, key, format string, args ...any) {
	if key != "" {
		key = " " + key
	}
	in.r.Add(kind, in.file, in.line, in.name+key, format, args...)
}

func (in *reading) step(what, name string, set, once []string) *Step {
	in.w.Steps = append(in.w.Steps, Step{What: what, Name: name, New: once, Set: set, File: in.file, Line: in.line,
		Key: in.name})
	return &in.w.Steps[len(in.w.Steps)-1]
}

// Read reads a file of one or more documents. nodes says which nodes a pool's partition gets, "" for all with GPUs.
func Read(file string, data []byte, nodes func(pool string) string, r *migrate.Report) (*Wanted, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, MaxBytes)
	}
	w := &Wanted{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return w, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s can't be read as YAML: %w", file, err)
		}
		if n == maxDocuments {
			return nil, fmt.Errorf("%s has more than %d documents", file, maxDocuments)
		}
		in := &reading{w: w, r: r, file: file, line: node.Line, name: "document"}
		if len(node.Content) == 1 {
			in.line = node.Content[0].Line
		}
		var m map[string]any
		if err := node.Decode(&m); err != nil {
			in.add(migrate.Person, "", "it is no object: %v", err)
			continue
		}
		if len(m) == 0 {
			continue // nothing between two lines of dashes
		}
		in.document(object{in: in, m: m}, nodes)
	}
}

func (in *reading) document(o object, nodes func(string) string) {
	kind, version := o.text("kind"), o.text("apiVersion")
	meta := o.object("metadata")
	name := meta.text("name")
	in.name = strings.TrimSpace(kind + " " + name)
	group, _, _ := strings.Cut(version, "/")
	if !goodName(name) {
		in.add(migrate.Person, "metadata.name", "'%.80s' is no name for gbatch (letters, digits, - _ and ., %d at most)",
			name, maxName)
		return
	}
	switch {
	case kind == "ComputePool":
		in.computePool(o, name, nodes(name))
	case kind == "ElasticJob":
		in.elasticJob(o, name)
	case kind == "Queue" && strings.HasPrefix(group, "scheduling.volcano.sh"):
		in.volcanoQueue(o, name)
	case kind == "ConfigMap":
		in.configMap(o.object("data"))
	default:
		in.add(migrate.Unsupported, "", "apiVersion %s: gbatch import knows ComputePool, ElasticJob, Volcano's Queue, and "+
			"ConfigMaps with queues.yaml", version)
		return
	}
	o.object("status") // it is what was, not what is wanted
	for _, key := range []string{"namespace", "uid", "resourceVersion", "creationTimestamp", "generation",
		"managedFields"} {
		delete(meta.m, key)
	}
	for _, key := range []string{"labels", "annotations"} {
		if meta.has(key) {
			delete(meta.m, key)
			in.add(migrate.Ignored, "metadata."+key, "gbatch's records have none")
		}
	}
	meta.rest()
	o.rest()
}

// goodName: it can be the name of a QOS, an account, a partition and a file.
func goodName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' || name[0] == '-' {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
