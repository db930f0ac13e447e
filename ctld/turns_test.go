package ctld

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
)

// TestTurns checks that explanations which wait for their turn hold no places of the gate that lists wait at, and that
// each gives up with its caller.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{machine: newMachine(), readers: newReaders(), people: someUsers(),
			log: slog.New(slog.DiscardHandler), clocks: newClocks(), nodes: newNodeSet()}
		leave, err := c.passTurn(t.Context(), "somebody's --test-only")
		if err != nil {
			t.Fatal(err)
		}
		for range runtime.GOMAXPROCS(0)/2 - 1 { // what else works now
			if err := c.readers.gate.Enter(t.Context(), "lists"); err != nil {
				t.Fatal(err)
			}
			defer c.readers.gate.Leave()
		}
		c.readers.gate.Leave() // that pass leaves one place
		body, err := proto.Encode(&proto.WhyRequest{Mine: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		for i := range 2 * runtime.GOMAXPROCS(0) {
			who := &caller{}
			who.UID = 1000 + uint32(i)
			h := handlers[proto.KindWhy]
			go func() {
				_, err := c.read(ctx, &call{r: &server.Request{}, who: who, kind: proto.KindWhy, body: body}, proto.KindWhy, &h)
				ended <- err
			}()
		}
		synctest.Wait()
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := c.readers.gate.Enter(soon, "someone else"); err != nil {
			t.Error("a list waits for explanations:", err)
		}
		cancel()
		for range 2 * runtime.GOMAXPROCS(0) {
			if err := <-ended; err == nil {
				t.Error("an explanation did not wait for its turn")
			}
		}
		leave()
	})
}

// TestKeyHangs checks that a tokens' key which can't be read, since its file system hangs, keeps nobody for ever.
func TestKeyHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Controller{readers: newReaders(), log: slog.New(slog.DiscardHandler)}
	c.opts.HTTP.JWTKey = path
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for range 2 {
		if _, err := c.readKey(ctx); err == nil {
			t.Fatal("a pipe without a writer was read")
		}
	}
	w, err := syscall.Open(path, syscall.O_WRONLY, 0) // it goes on
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(w, []byte("0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Close(w); err != nil {
		t.Fatal(err)
	}
	c.readers.keys <- struct{}{} // the read has ended
	<-c.readers.keys
	c.opts.HTTP.JWTKey = filepath.Join(t.TempDir(), "none")
	if _, err := c.readKey(t.Context()); err == nil || strings.Contains(err.Error(), "hangs") {
		t.Error("after a read that hung:", err)
	}
}
