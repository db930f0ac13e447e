package gpu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// monitor.go is NVML's Watch: one child process that lives as long as gnoded does and prints a line of JSON each round.
// A byte on its standard input asks for a round now. It ends when that input does, so that a gnoded that is killed
// leaves none. A child that crashes, ends or is silent is replaced.

const (
	monitorArg      = "gbatch-gpu-monitor" // like helperArg
	monitorSilence  = 4                    // rounds without a line, and at least the timeout: it hangs
	monitorPause    = time.Second          // before a child is replaced; twice as long each time
	monitorMaxPause = time.Minute
	monitorFarewell = 100 * time.Millisecond // between the request to end and the kill
	monitorWell     = time.Minute            // a child that ran so long was well: the next pause is short again
	maxLine         = maxAnswer              // bytes of one round
)

// line is one round of the monitor.
type line struct {
	NoDriver bool     `json:",omitempty"`
	NoCgo    bool     `json:",omitempty"`
	Error    string   `json:",omitempty"`
	GPUs     []sample `json:",omitempty"`
}

// monitorMain prints rounds until stdin ends or the driver can't be asked any more.
func monitorMain(library, every string, stdin io.Reader, stdout io.Writer) int {
	d, err := time.ParseDuration(every)
	if err != nil {
		return 2
	}
	ended, asked := make(chan int, 2), make(chan struct{}, 1)
	go func() {
		for b := make([]byte, 64); ; {
			if _, err := stdin.Read(b); err != nil {
				ended <- 0
				return
			}
			select {
			case asked <- struct{}{}:
			default: // it is asked for already
			}
		}
	}()
	go func() {
		out := json.NewEncoder(stdout)
		err := monitor(library, max(d, minEvery), asked,
			func(gpus []sample) error { return out.Encode(line{GPUs: gpus}) })
		var l line
		switch {
		case errors.Is(err, ErrNoDriver):
			l.NoDriver = true
		case errors.Is(err, ErrNoCgo):
			l.NoCgo = true
		default:
			l.Error = err.Error()
		}
		if out.Encode(l) != nil {
			ended <- 1
			return
		}
		ended <- 0
	}()
	return <-ended // a call into the driver that hangs ends with the process
}

// Watch runs the monitor. Without a child each round is an error.
func (s *nvmlSource) Watch(ctx context.Context, every time.Duration, now <-chan struct{},
	got func([]Reading, error)) {
	every = max(every, minEvery)
	var t tracker
	pause := monitorPause
	for ctx.Err() == nil {
		began := time.Now()
		gone, err := s.watchOnce(ctx, every, now, func(gpus []sample) { got(t.take(gpus), nil) })
		if time.Since(began) > monitorWell {
			pause = monitorPause
		}
		// A child that hangs in the driver may outlive its kill: wait for its end, so there is never a second.
		for again := time.Now().Add(pause); ctx.Err() == nil && (time.Now().Before(again) || !closed(gone)); {
			got(nil, err)
			if left := time.Until(again); left > 0 {
				sleep(ctx, min(left, every))
			} else {
				sleep(ctx, every)
			}
		}
		pause = min(2*pause, monitorMaxPause)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// watchOnce runs one child until it ends, hangs or ctx does, and says why; then it kills the child, and gone is closed
// after the child's end.
func (s *nvmlSource) watchOnce(ctx context.Context, every time.Duration, now <-chan struct{},
	round func([]sample)) (gone <-chan struct{}, err error) {
	c, err := s.startMonitor(every)
	if err != nil {
		none := make(chan struct{})
		close(none)
		return none, fmt.Errorf("start the GPU monitor: %w", err)
	}
	silence := max(monitorSilence*every, s.Timeout)
	err = c.follow(ctx, silence, now, round)
	if end := c.end(); err == nil {
		err = end
	}
	return c.gone, err
}

// child is one monitor process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File
	stderr bytes.Buffer // when gone
	gone   chan struct{}
	err    error // of Wait, when gone
}

func (s *nvmlSource) startMonitor(every time.Duration) (*child, error) {
	binary := s.Binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	c := &child{cmd: exec.Command(binary, monitorArg, s.Library, every.String()), stdout: r, gone: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.WaitDelay = w, &limitedTail{&c.stderr}, helperGrace
	if c.stdin, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.gone)
	}()
	return c, nil
}

// follow forwards rounds until the child stops. nil: it ended, or ctx did.
func (c *child) follow(ctx context.Context, silence time.Duration, now <-chan struct{}, round func([]sample)) error {
	lines, quit := make(chan []byte), make(chan struct{})
	defer close(quit)
	var broken error // before lines is closed
	go func() {
		defer c.stdout.Close()
		defer close(lines)
		sc := bufio.NewScanner(c.stdout)
		sc.Buffer(nil, maxLine)
		for sc.Scan() {
			select {
			case lines <- bytes.Clone(sc.Bytes()):
			case <-quit:
				return
			}
		}
		if errors.Is(sc.Err(), bufio.ErrTooLong) {
			broken = fmt.Errorf("the GPU monitor gave a line of more than %d bytes", maxLine)
		}
	}()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-now:
			if _, err := c.stdin.Write([]byte{'\n'}); err != nil {
				return nil // it has ended, and end says how
			}
		case <-quiet.C:
			return fmt.Errorf("the GPU monitor said nothing in %v; the NVIDIA driver may hang (see dmesg)", silence)
		case b, ok := <-lines:
			if !ok {
				return broken
			}
			quiet.Reset(silence)
			var l line
			if err := json.Unmarshal(b, &l); err != nil {
				return fmt.Errorf("the GPU monitor gave an unreadable line: %w", err)
			}
			switch {
			case l.NoDriver:
				return ErrNoDriver
			case l.NoCgo:
				return ErrNoCgo
			case l.Error != "":
				return fmt.Errorf("read the GPUs: %s", l.Error)
			}
			round(l.GPUs)
		}
	}
}

// end ends the child, if it still runs, and returns how it ended.
func (c *child) end() error {
	wait := time.NewTimer(helperGrace)
	defer wait.Stop()
	c.stdin.Close()
	select {
	case <-c.gone: // it crashed, or minds its input
	case <-time.After(monitorFarewell):
		_ = c.cmd.Process.Kill() // it has ended: the same
	}
	select {
	case <-c.gone:
	case <-wait.C:
		return errors.New("the GPU monitor hangs in the NVIDIA driver and can't be ended (see dmesg)")
	}
	text, _, _ := strings.Cut(strings.TrimSpace(c.stderr.String()), "\n") // a traceback may follow
	switch {
	case c.err == nil:
		return errors.New("the GPU monitor ended")
	case text != "":
		return fmt.Errorf("the GPU monitor failed: %w: %s", c.err, text)
	}
	return fmt.Errorf("the GPU monitor failed: %w", c.err)
}
