package asuser

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"time"
)

// within.go bounds what a daemon waits for when it touches a user's files. A file server that is gone keeps a thread
// for as long as it is gone; the daemon goes on without an answer.

// Why Within gave up.
var (
	ErrCrowded = errors.New("too many reads and writes of users' files hang")
	ErrHangs   = errors.New("the user's file system hangs")
)

// Places bounds the goroutines that touch users' files at once: of all users, and of each, so that one user's hanging
// file system leaves places for the others.
type Places struct {
	all, each int

	mu    sync.Mutex
	taken int
	of    map[uint32]int // by user id
}

// NewPlaces gives as many places in all, and to each user.
func NewPlaces(all, each int) *Places { return &Places{all: all, each: each, of: map[uint32]int{}} }

func (p *Places) take(uid uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.all || p.of[uid] >= p.each {
		return false
	}
	p.taken++
	p.of[uid]++
	return true
}

func (p *Places) leave(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[uid]--; p.of[uid] == 0 {
		delete(p.of, uid)
	}
}

// lookAgain is between two looks for a place.
const lookAgain = 5 * time.Millisecond

// Within calls f, which touches files of the user uid, on a goroutine of its own, and waits for at most limit. The
// goroutine has its place until f returns. f may Become the user. It waits as long for a place.
func Within[T any](p *Places, uid uint32, limit time.Duration, f func() (T, error)) (got T, err error) {
	for end := time.Now().Add(limit); !p.take(uid); time.Sleep(lookAgain) {
		if !time.Now().Before(end) {
			return got, ErrCrowded
		}
	}
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.got, r.err = f()
		p.leave(uid)
		done <- r
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-done:
		return r.got, r.err
	case <-late.C:
		return got, ErrHangs
	}
}

// Become gives a user's rights to files to the calling goroutine, which must end soon: its thread ends with it. A
// daemon without root's rights has its own user's already.
func Become(uid, gid uint32, groups []uint32) error {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if os.Geteuid() != 0 {
		return nil
	}
	return OnThread(uid, gid, groups)
}
