package allocfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// The names of the files.
const (
	File  = "allocation.json"
	Hosts = "allocation.hosts"
	GPUs  = "allocation.gpus"
)

// Store has the files of one gnoded.
type Store struct {
	dir  string
	root bool

	mu      sync.Mutex
	written map[proto.Attempt]uint32 // the version that is there, plus 1
}

// Open makes the store's folder. With root, files are given to the jobs' users.
func Open(dir string, root bool) (*Store, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the folder of jobs' allocation files: %w", err)
	}
	return &Store{dir: dir, root: root, written: map[proto.Attempt]uint32{}}, nil
}

// Path gives the path of an attempt's allocation.json.
func (s *Store) Path(key proto.Attempt) string { return filepath.Join(s.folder(key), File) }

func (s *Store) folder(key proto.Attempt) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.%d", key.Job, key.Attempt))
}

// Size is what a job's files say.
type Size struct {
	Key      proto.Attempt
	UID, GID uint32
	Version  uint32
	Least    int32
	Most     int32
	Alloc    *model.Alloc
	Asked    []string   // nodes that it is to give back
	Due      model.Time // when they are taken
}

// The JSON of a job's nodes.
type (
	document struct {
		Job     model.JobID `json:"job_id"`
		Attempt uint32      `json:"attempt"`
		Version uint32      `json:"version"`
		Nodes   []node      `json:"nodes"`
		Count   int         `json:"num_nodes"`
		Least   int32       `json:"min_nodes"`
		Most    int32       `json:"max_nodes"`
		Asked   *question   `json:"asked,omitempty"`
	}
	node struct {
		Name    string `json:"name"`
		CPUs    int    `json:"cpus"`
		Tasks   int32  `json:"tasks"`
		GPUs    []int  `json:"gpus"`
		Leaving bool   `json:"leaving"`
	}
	question struct {
		Nodes []string `json:"nodes"`
		Until int64    `json:"until"` // seconds since 1970
	}
)

// Write replaces an attempt's files, unless they are of this version or a newer one.
func (s *Store) Write(z *Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written[z.Key] > z.Version {
		return nil
	}
	d := document{Job: z.Key.Job, Attempt: z.Key.Attempt, Version: z.Version, Count: len(z.Alloc.Nodes), Least: z.Least,
		Most: z.Most}
	if len(z.Asked) > 0 {
		d.Asked = &question{z.Asked, int64(z.Due) / 1000}
	}
	var hosts, gpus strings.Builder
	for i := range z.Alloc.Nodes {
		na := &z.Alloc.Nodes[i]
		n := node{Name: na.Node, CPUs: na.CPUs.Count(), Tasks: na.Tasks, GPUs: []int{},
			Leaving: slices.Contains(z.Asked, na.Node)}
		na.Units(model.GPUName).Each(func(k int) bool { n.GPUs = append(n.GPUs, k); return true })
		d.Nodes = append(d.Nodes, n)
		if n.Leaving {
			continue
		}
		fmt.Fprintln(&hosts, n.Name)
		words := make([]string, len(n.GPUs))
		for k, g := range n.GPUs {
			words[k] = strconv.Itoa(g)
		}
		fmt.Fprintf(&gpus, "%s:%s\n", n.Name, strings.Join(words, ","))
	}
	text, err := json.MarshalIndent(&d, "", " ")
	if err != nil {
		return fmt.Errorf("the allocation file of job %d: %w", z.Key.Job, err)
	}
	if err := os.Mkdir(s.folder(z.Key), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, f := range []struct{ name, text string }{{Hosts, hosts.String()}, {GPUs, gpus.String()},
		{File, string(text) + "\n"}} {
		if err := s.replace(z, f.name, f.text); err != nil {
			return fmt.Errorf("the allocation file of job %d: %w", z.Key.Job, err)
		}
	}
	s.written[z.Key] = z.Version + 1
	return nil
}

// replace puts a file into the place of the one before. The folder is gnoded's own, so nobody else puts a link there.
func (s *Store) replace(z *Size, name, text string) error {
	f, err := os.CreateTemp(s.folder(z.Key), "."+name+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(0o400)
	}
	if err == nil && s.root {
		err = f.Chown(int(z.UID), int(z.GID))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.folder(z.Key), name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says what is wrong
	}
	return err
}

// Remove removes the files of an attempt that has ended.
func (s *Store) Remove(key proto.Attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, key)
	return os.RemoveAll(s.folder(key))
}

// Sweep removes the files of attempts that this node does not have any more.
func (s *Store) Sweep(has func(proto.Attempt) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		var key proto.Attempt
		if _, err := fmt.Sscanf(e.Name(), "%d.%d", &key.Job, &key.Attempt); err != nil || !has(key) {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
