package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Ask answers a question in parts. The values of a point are those of proto.HistoryOf.Shown.
func (s *Store) Ask(ctx context.Context, q *proto.HistoryQuery, each func(*proto.HistoryReply) error) error {
	w, err := s.window(&q.Ask)
	if err != nil {
		return err
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	names, more := q.Ask.Names, false
	if len(names) == 0 || slices.ContainsFunc(names, isPrefix) {
		if names, more, err = s.names(q.Ask.Of, names, w); err != nil {
			return err
		}
	}
	reply := &proto.HistoryReply{More: more}
	points := 0
	for _, name := range names {
		x := proto.HistorySeries{Of: q.Ask.Of, Name: name, StepS: w.step}
		if err := s.series(q, w, &x); err != nil {
			return err
		}
		if len(x.Points) == 0 {
			continue
		}
		reply.List = append(reply.List, x)
		if points += len(x.Points); points >= proto.HistoryPart {
			if err := each(reply); err != nil {
				return err
			}
			reply, points = &proto.HistoryReply{}, 0
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return each(reply)
}

func isPrefix(name string) bool { return strings.HasSuffix(name, "/") }

// window is the time of a question: seconds since 1970, [start, end).
type window struct{ start, end, step int64 }

func (s *Store) window(q *proto.HistoryRequest) (window, error) {
	now := s.now().Unix()
	w := window{start: q.Start.Seconds(), end: q.End.Seconds(), step: q.StepS}
	if q.End == 0 || w.end > now+ahead*minute {
		w.end = now + minute
	}
	w.start = max(w.start, now-proto.HistoryLongFor-dayS)
	if w.step == 0 {
		if w.step = minute; now-w.start > proto.HistoryFineFor+hourS {
			w.step = proto.HistoryCoarseS
		}
	}
	switch {
	case len(q.Of.Fields()) == 0:
		return w, &BadError{fmt.Sprintf("nothing of kind %d is measured", q.Of)}
	case w.step < minute || w.step%minute != 0:
		return w, &BadError{fmt.Sprintf("a step of %d seconds: it has to be whole minutes", w.step)}
	case (w.end-w.start)/w.step >= proto.MaxHistoryPoints:
		return w, &BadError{fmt.Sprintf("%d points are too many: ask for a longer step", (w.end-w.start)/w.step)}
	}
	return w, nil
}

// fine reports whether minutes are asked for.
func (w *window) fine() bool { return w.step < proto.HistoryCoarseS }

// buckets calls f with the buckets of the window, and the second since 1970 at which each begins.
func (w *window) buckets(tx *bolt.Tx, f func(b *bolt.Bucket, from, slotS int64)) {
	of, length, slot := tx.Bucket(keyCoarse), int64(dayS), int64(proto.HistoryCoarseS)
	if w.fine() {
		of, length, slot = tx.Bucket(keyFine), hourS, minute
	}
	c := of.Cursor()
	for k, _ := c.Seek(number(max(0, w.start/length))); k != nil; k, _ = c.Next() {
		at := int64(binary.BigEndian.Uint64(k)) * length
		if at >= w.end {
			return
		}
		if b := of.Bucket(k); b != nil {
			f(b, at, slot)
		}
	}
}

// names lists the series of a kind that have samples in the window.
func (s *Store) names(of proto.HistoryOf, like []string, w window) (list []string, more bool, err error) {
	found := map[string]bool{}
	if len(like) == 0 {
		like = []string{""}
	}
	for _, l := range like {
		if l != "" && !isPrefix(l) {
			found[l] = true
		}
	}
	add := func(key string) bool {
		if more = len(found) >= proto.MaxHistoryNames && !found[key[1:]]; !more {
			found[key[1:]] = true
		}
		return !more
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key := range s.head {
		if slices.ContainsFunc(like, func(l string) bool {
			return (l == "" || isPrefix(l)) && strings.HasPrefix(key, nameOf(of, l))
		}) && !add(key) {
			break
		}
	}
	err = s.guard(func() error {
		return s.bolt.View(func(tx *bolt.Tx) error {
			w.buckets(tx, func(b *bolt.Bucket, _, _ int64) {
				for _, l := range like {
					if l != "" && !isPrefix(l) {
						continue
					}
					prefix := []byte(nameOf(of, l))
					c := b.Cursor()
					for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && !more; k, _ = c.Next() {
						add(string(k))
					}
				}
			})
			return nil
		})
	})
	for name := range found {
		list = append(list, name)
	}
	slices.Sort(list)
	return list, more, err
}

// series reads one series.
func (s *Store) series(q *proto.HistoryQuery, w window, x *proto.HistorySeries) error {
	key := []byte(nameOf(x.Of, x.Name))
	m, at := newMeans(x.Of), int64(-1)
	most := len(x.Of.Shown())
	all := make([]int64, len(x.Of.Fields()))
	end := func() {
		if m.any {
			m.take(all)
			x.Points = append(x.Points, proto.HistoryPoint{At: model.Time((at + w.step) * 1000),
				Values: slices.Clone(all[:most])})
		}
	}
	add := func(b []byte, from, slotS int64) {
		read(b, func(r row) {
			t := from + r.slot*slotS
			if t < w.start-slotS+1 || t >= w.end {
				return
			}
			values := shown(q, r.values)
			if values == nil {
				return
			}
			if step := t - t%w.step; step != at {
				end()
				at = step
			}
			m.add(values)
		})
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	err := s.guard(func() error {
		return s.bolt.View(func(tx *bolt.Tx) error {
			w.buckets(tx, func(b *bolt.Bucket, from, slotS int64) { add(b.Get(key), from, slotS) })
			return nil
		})
	})
	if r := s.head[string(key)]; err == nil && r != nil {
		add(r.bytes, s.hour*hourS, minute)
	}
	end()
	return err
}

// shown gives the values of a sample that answers the question, without whose they are for who may not know; nil: it
// does not answer it.
func shown(q *proto.HistoryQuery, values []int64) []int64 {
	switch q.Ask.Of {
	case proto.HistoryJob:
		if q.Only && (len(values) <= proto.HistoryJobOwner || values[proto.HistoryJobOwner] != int64(q.UID)) {
			return nil
		}
	case proto.HistoryGPU:
		known := len(values) > proto.HistoryGPUOwner
		if q.Only && known && values[proto.HistoryGPUOwner] != int64(q.UID) {
			values = slices.Clone(values)
			values[proto.HistoryGPUJob], values[proto.HistoryGPUOwner] = -1, -1
		}
		if q.Ask.Job != 0 && (!known || values[proto.HistoryGPUJob] != int64(q.Ask.Job)) {
			return nil
		}
	}
	return values
}
