package state

import (
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// once.go makes a request's change at most once. The request's commands are parts of one Once, which also has the
// request's answer. Whoever makes the request again, on whichever controller, gets the answer of the first time.

// OnceStep says what a Once does. The numbers are stored: append only.
type OnceStep uint8

// The steps.
const (
	OnceMake   OnceStep = iota + 1 // applies the parts and remembers the answer
	OnceBegin                      // remembers that something outside of the facts is about to be done
	OnceFinish                     // remembers the answer of what was begun
)

// Once applies commands that belong to one request, unless it was applied before under the same key; then it changes
// nothing and its Result is Repeated. It is forgotten after requestAgeS.
type Once struct {
	Key   string // the user and the request's id
	Step  OnceStep
	Parts [][]byte // encoded commands of any kind but Once; the Once's moment counts, not theirs
	Reply []byte   // the answer if the state refuses nothing
	Spots []int32  // by target of all parts, in order: its place in the answer; empty: they are the same
}

func (x *Once) Wire(c *wire.C) {
	wire.ID(c, &x.Key, model.MaxName)
	wire.Int(c, &x.Step)
	wire.Each(c, &x.Parts, model.MaxList, func(c *wire.C, e *[]byte) { wire.Bytes(c, e, maxPart) })
	wire.Bytes(c, &x.Reply, model.MaxFile)
	wire.Ints(c, &x.Spots, model.MaxMany)
}

func (*Once) kind() Kind { return KindOnce }

// maxPart bounds one command in a Once, bytes.
const maxPart = 16 << 20

// validOnce checks a Once but for its commands, which Encode has checked.
func validOnce(x *Once) error {
	if x.Key == "" {
		return malformed("a request without an id")
	}
	if x.Step < OnceMake || x.Step > OnceFinish || (x.Step == OnceMake) != (len(x.Parts) > 0) {
		return malformed("step %d of a request, with %d commands", x.Step, len(x.Parts))
	}
	for _, data := range x.Parts {
		if len(data) > 0 && Kind(data[0]) == KindOnce {
			return malformed("a request within a request")
		}
	}
	return nil
}

// parts decodes a Once's commands.
func (x *Once) parts() ([]Command, error) {
	out := make([]Command, len(x.Parts))
	for i, data := range x.Parts {
		var err error
		if out[i], err = Decode(data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Answer is what is remembered of a request. It is immutable.
type Answer struct {
	At      model.Time
	Begun   bool // something outside of the facts was begun, and its outcome is not known
	Reply   []byte
	Refused []RefusedTarget

	seq uint64
}

// RefusedTarget is a target that the state refused: its place in the answer, and why.
type RefusedTarget struct {
	Spot int32
	Why  Refusal
}

func (x *RefusedTarget) Wire(c *wire.C) {
	wire.Int(c, &x.Spot)
	wire.Int(c, &x.Why)
}

// bytes is what an answer takes of MaxAnswerBytes.
func (a *Answer) bytes() int { return len(a.Reply) + 8*len(a.Refused) }

// Bounds of the remembered answers. The oldest go first; both leave an answer more than a minute at 4,000 requests a
// second, and nobody asks again after that.
const (
	MaxAnswers     = 1 << 18
	MaxAnswerBytes = 64 << 20 // of the answers' own content
	answersPerOnce = 2        // outdated answers that one Once removes: more than it adds
)

// answers has the remembered answers, by key and in order of arrival.
type answers struct {
	byKey *btree.Map[string, *Answer]
	order *btree.Map[uint64, string]
	next  uint64
	bytes int
}

func newAnswers() answers {
	return answers{byKey: new(btree.Map[string, *Answer]), order: new(btree.Map[uint64, string]), next: 1}
}

func (t *answers) put(key string, a *Answer) {
	t.drop(key)
	a.seq = t.next
	t.next++
	t.byKey.Set(key, a)
	t.order.Set(a.seq, key)
	t.bytes += a.bytes()
}

func (t *answers) drop(key string) {
	if old, ok := t.byKey.Delete(key); ok {
		t.order.Delete(old.seq)
		t.bytes -= old.bytes()
	}
}

// forget drops up to limit outdated answers, and those that are too many to add one.
func (t *answers) forget(at model.Time, limit int) {
	for n := 0; ; n++ {
		_, key, ok := t.order.Min()
		if !ok {
			return
		}
		a, _ := t.byKey.Get(key)
		if t.byKey.Len() < MaxAnswers && t.bytes <= MaxAnswerBytes && (n >= limit || a.At.Add(requestAgeS) > at) {
			return
		}
		t.drop(key)
	}
}

// check compares the indexes.
func (t *answers) check() (err error) {
	bytes := 0
	t.order.Scan(func(seq uint64, key string) bool {
		a, ok := t.byKey.Get(key)
		if !ok || a.seq != seq || seq >= t.next {
			err = fmt.Errorf("the answer to %q stands at %d, the next is %d", key, seq, t.next)
			return false
		}
		bytes += a.bytes()
		return true
	})
	if err == nil && (t.byKey.Len() != t.order.Len() || bytes != t.bytes) {
		err = fmt.Errorf("%d answers of %d bytes, %d in their order, with %d bytes", t.byKey.Len(), t.bytes, t.order.Len(),
			bytes)
	}
	return err
}

// applyOnce applies a request's commands, unless they were applied before. An answer is remembered if a part was not
// refused; a request of which nothing was made may be made again.
func (s *State) applyOnce(at model.Time, c *Once, parts []Command) Result {
	s.answers.forget(at, answersPerOnce)
	old, known := s.answers.byKey.Get(c.Key)
	switch {
	case c.Step == OnceFinish:
		if known && old.Begun {
			s.answers.put(c.Key, &Answer{At: at, Reply: c.Reply})
		}
		return Result{}
	case known:
		return Result{Refusal: Repeated}
	case c.Step == OnceBegin:
		s.answers.put(c.Key, &Answer{At: at, Begun: true})
		return Result{}
	}
	if parts == nil { // the command comes from its maker, and not from a log
		var err error
		if parts, err = c.parts(); err != nil {
			return Result{}
		}
	}
	a := &Answer{At: at, Reply: c.Reply}
	res := Result{Parts: make([]Result, len(parts))}
	made, target := false, 0
	changed := false
	for i, part := range parts {
		part.At = at
		if _, is := part.Body.(*Audits); is && !changed && i > 0 {
			continue // of what was refused nothing is told; entries that come first are the change
		}
		r := s.fold(part)
		changed = changed || r.Changed || r.Refusal == OK && len(r.Each) == 0 || slices.Contains(r.Each, OK)
		made = made || r.Refusal == OK
		res.Changed = res.Changed || r.Changed
		for _, why := range r.Each {
			if why != OK {
				spot := int32(target)
				if target < len(c.Spots) {
					spot = c.Spots[target]
				}
				a.Refused = append(a.Refused, RefusedTarget{spot, why})
			}
			target++
		}
		res.Parts[i] = r
	}
	if made {
		s.answers.put(c.Key, a)
	}
	return res
}

// Answer gives what is remembered of a request, or nil.
func (v *View) Answer(key string) *Answer {
	a, _ := v.answers.byKey.Get(key)
	return a
}

// snapAnswer is an answer in a snapshot.
type snapAnswer struct {
	Key     string
	At      model.Time
	Begun   bool
	Reply   []byte
	Refused []RefusedTarget
	Seq     uint64
}

func (x *snapAnswer) Wire(c *wire.C) {
	wire.ID(c, &x.Key, model.MaxName)
	wire.Int(c, &x.At)
	wire.Bool(c, &x.Begun)
	wire.Bytes(c, &x.Reply, model.MaxFile)
	wire.List(c, &x.Refused, model.MaxMany)
	wire.Int(c, &x.Seq)
}

// answer reads one.
func (in *restorer) answer() error {
	var x snapAnswer
	if err := in.d.Read(&x); err != nil {
		return err
	}
	t := &in.n.answers
	if _, twice := t.byKey.Get(x.Key); twice || x.Key == "" {
		return fmt.Errorf("the answer to request %q is there twice", x.Key)
	}
	a := &Answer{At: x.At, Begun: x.Begun, Reply: x.Reply, Refused: x.Refused, seq: x.Seq}
	t.byKey.Set(x.Key, a)
	t.order.Set(x.Seq, x.Key)
	t.bytes += a.bytes()
	return nil
}
