package greshelper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gbatch/noded/shim"
)

// Attempt is one start of a job.
type Attempt struct{ Job, Attempt uint32 }

// Store has the helpers of one gnoded: those that are asked, and the answers of those that run, each in a file.
type Store struct {
	dir string

	mu     sync.Mutex
	of     map[Attempt]*Helper
	asking map[shim.Key]*asked
}

// Helper is a helper that has answered.
type Helper struct {
	Step int32    `json:"step"` // by which gshim knows its keeper
	Env  []string `json:"env"`

	ended   bool
	stopped time.Time // when it was told to end; zero: it was not
}

// asked is a helper that is to answer.
type asked struct {
	out  *os.File // its keeper's word
	text string   // why gshim could not start the keeper
}

// Open makes the folder, and reads the answers that an earlier gnoded has left there.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, of: map[Attempt]*Helper{}, asking: map[shim.Key]*asked{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the helpers' answers: %w", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		var key Attempt
		if n, err := fmt.Sscanf(f.Name(), "%d.%d", &key.Job, &key.Attempt); err != nil || n != 2 || s.path(key) !=
			filepath.Join(dir, f.Name()) {
			_ = os.Remove(filepath.Join(dir, f.Name())) // half written: the job has not begun
			continue
		}
		data, err := os.ReadFile(s.path(key))
		h := &Helper{}
		if err == nil {
			err = json.Unmarshal(data, h)
		}
		if err != nil {
			return nil, fmt.Errorf("the helper's answer of job %d: %w", key.Job, err)
		}
		s.of[key] = h
	}
	return s, nil
}

func (s *Store) path(key Attempt) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.%d", key.Job, key.Attempt))
}

// Sweep removes the answers of attempts that are not there any more.
func (s *Store) Sweep(there func(Attempt) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for key := range s.of {
		if !there(key) {
			errs = append(errs, s.remove(key))
		}
	}
	return errors.Join(errs...)
}

// Env gives the variables that an attempt's helper has answered; false: it has none.
func (s *Store) Env(key Attempt) ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.of[key]; h != nil {
		return h.Env, true
	}
	return nil, false
}

// Remove forgets an attempt's helper, which has ended.
func (s *Store) Remove(key Attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(key)
}

func (s *Store) remove(key Attempt) error {
	if s.of[key] == nil {
		return nil
	}
	delete(s.of, key)
	if err := os.Remove(s.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keep puts an answer on disk.
func (s *Store) keep(key Attempt, h *Helper) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	temp := s.path(key) + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, s.path(key))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	s.of[key] = h
	return nil
}

// slack is how much longer than its time limit a helper is waited for: gshim has to start its keeper.
const slack = 5 * time.Second

// lastWord is how long a keeper's word may take when the keeper has ended.
const lastWord = 500 * time.Millisecond

// Ask gives a helper its line and waits for its answer. order is for its keeper; send gives it to gshim. An error is
// the helper's fault, or this node's.
func (s *Store) Ask(key Attempt, order *shim.Launch, line *Start, taken []string,
	send func(*shim.Launch)) (*Answer, error) {
	text, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	if len(text) > maxStart {
		return nil, fmt.Errorf("its units are too many: the line about them has %d bytes", len(text))
	}
	var ends [4]*os.File
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return nil, err
		}
		defer func() { _ = errors.Join(ends[i].Close(), ends[i+1].Close()) }() // pipes: the first may be closed already
	}
	limit := time.Now().Add(time.Duration(line.LimitS)*time.Second + slack)
	if err := errors.Join(ends[1].SetWriteDeadline(limit), ends[2].SetReadDeadline(limit)); err != nil {
		return nil, err
	}
	order.Passed[0], order.Passed[1] = ends[0], ends[3]
	a := &asked{out: ends[2]}
	s.mu.Lock()
	s.asking[order.Key] = a
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asking, order.Key)
		s.mu.Unlock()
	}()
	send(order)
	if _, err = ends[1].Write(text); err == nil {
		err = ends[1].Close()
	}
	w := &word{}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(ends[2], 2*maxAnswer+4*maxSaid)).Decode(w)
	}
	s.mu.Lock()
	why := a.text
	s.mu.Unlock()
	switch {
	case err != nil && why != "":
		return nil, errors.New(why)
	case err != nil:
		return nil, fmt.Errorf("it has not answered within %d s", line.LimitS)
	}
	answer, err := w.read(taken)
	if err != nil || answer.Refuse != "" {
		return answer, err
	}
	return answer, s.keep(key, &Helper{Step: order.Key.Step, Env: answer.Env})
}

// Hear takes gshim's news of a keeper. known is false if nobody knows it; early is true if a helper has ended that was
// not told to.
func (s *Store) Hear(key Attempt, ev *shim.Event) (known, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.asking[ev.Key]; a != nil {
		if ev.Done() {
			if a.text = "it ended before it answered"; ev.Kind == shim.LaunchFailed {
				a.text = strings.TrimSpace(ev.Text)
			}
			_ = a.out.SetReadDeadline(time.Now().Add(lastWord)) // a pipe takes it
		}
		return true, false
	}
	h := s.of[key]
	if h == nil || h.Step != ev.Key.Step {
		return false, false
	}
	if ev.Done() {
		early, h.ended = h.stopped.IsZero() && !h.ended, true
	}
	return true, early
}

// Stop ends an attempt's helper, in steps: it is called again until it returns false. signal signals the keeper, and
// says whether it is there.
func (s *Store) Stop(key Attempt, now time.Time, signal func(step int32, kill bool) bool) bool {
	s.mu.Lock()
	h := s.of[key]
	if h == nil || h.ended {
		s.mu.Unlock()
		return false
	}
	first, late := h.stopped.IsZero(), !h.stopped.IsZero() && now.Sub(h.stopped) > Going+time.Second
	if first {
		h.stopped = now
	}
	step := h.Step
	s.mu.Unlock()
	switch {
	case first && signal(step, false):
		return true
	case late:
		signal(step, true)
	case !first:
		return true
	}
	s.mu.Lock()
	h.ended = true
	s.mu.Unlock()
	return false
}
