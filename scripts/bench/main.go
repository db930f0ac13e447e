// Command bench makes the calls that scripts/bench.sh measures, and times them: a shell's own loop costs as much as the
// command in it.
//
//	bench loop -n CALLS -c LOOPS -- COMMAND...   calls a second, median and 99th percentile in ms, calls that failed
//	bench peak -n CALLS -- COMMAND...            median wall ms, median CPU ms, largest peak memory in KiB
//	bench sync DIR                               median microseconds of a 4 KiB append with fdatasync in DIR
//
// {} in COMMAND becomes the number of the call, from 1. Output of COMMAND is thrown away.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("expected loop, peak or sync; scripts/bench.sh calls this program")
	}
	if args[0] == "sync" && len(args) == 2 {
		return syncs(args[1])
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	calls := fs.Int("n", 1, "`number` of calls")
	loops := fs.Int("c", 1, "`number` of loops that call at the same time")
	limit := fs.Duration("t", 5*time.Minute, "stop after this `time`")
	open := fs.Bool("open", false, "as many calls as the time allows: those that -n has beyond them have not failed")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	if fs.NArg() == 0 || *calls < 1 || *loops < 1 {
		return fmt.Errorf("%s: a command is missing, or a number is less than 1", args[0])
	}
	path, err := exec.LookPath(fs.Arg(0))
	if err != nil {
		return err
	}
	b := &bench{path: path, argv: fs.Args(), calls: *calls, loops: *loops, until: time.Now().Add(*limit),
		open: *open}
	switch args[0] {
	case "loop":
		return b.loop()
	case "peak":
		b.loops = 1
		return b.peak()
	}
	return fmt.Errorf("'%s' is neither loop, peak nor sync", args[0])
}

// syncs times what everything durable waits for.
func syncs(dir string) error {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // the whole directory is removed in the end
	block := make([]byte, 4096)
	all := make([]call, 300)
	for i := range all {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
		all[i].wall = time.Since(begin)
	}
	fmt.Println(at(sorted(all, func(c call) time.Duration { return c.wall }), 0.5).Microseconds())
	return f.Close()
}

// bench is one series of calls.
type bench struct {
	path  string
	argv  []string
	calls int
	loops int
	until time.Time
	open  bool // calls that the time left no room for have not failed
}

// call is one of them.
type call struct {
	wall, cpu time.Duration
	peakKB    int64
	failed    bool
}

// all makes the calls and gives them in the order in which each loop made them.
func (b *bench) all() ([]call, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	var next atomic.Int64
	per := make([][]call, b.loops)
	errs := make([]error, b.loops)
	var wg sync.WaitGroup
	for k := range b.loops {
		wg.Go(func() {
			for errs[k] == nil && time.Now().Before(b.until) {
				i := next.Add(1)
				if i > int64(b.calls) {
					return
				}
				c, err := b.one(null, i)
				per[k], errs[k] = append(per[k], c), err
			}
		})
	}
	wg.Wait()
	return slices.Concat(per...), errors.Join(errs...)
}

func (b *bench) one(null *os.File, i int64) (call, error) {
	argv := make([]string, len(b.argv))
	for k, a := range b.argv {
		argv[k] = strings.ReplaceAll(a, "{}", strconv.FormatInt(i, 10))
	}
	begin := time.Now()
	p, err := os.StartProcess(b.path, argv, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, null, null}})
	if err != nil {
		return call{}, err
	}
	st, err := p.Wait()
	if err != nil {
		return call{}, err
	}
	c := call{wall: time.Since(begin), cpu: st.UserTime() + st.SystemTime(), failed: !st.Success()}
	if r, ok := st.SysUsage().(*syscall.Rusage); ok {
		c.peakKB = r.Maxrss
	}
	return c, nil
}

func (b *bench) loop() error {
	begin := time.Now()
	all, err := b.all()
	took := time.Since(begin)
	if err != nil {
		return err
	}
	failed := 0
	for _, c := range all {
		if c.failed {
			failed++
		}
	}
	if !b.open {
		failed += b.calls - len(all)
	}
	walls := sorted(all, func(c call) time.Duration { return c.wall })
	fmt.Printf("%.0f %.1f %.1f %d\n", float64(len(all))/took.Seconds(), ms(at(walls, 0.5)), ms(at(walls, 0.99)), failed)
	return nil
}

func (b *bench) peak() error {
	all, err := b.all()
	if err != nil {
		return err
	}
	peak := int64(0)
	for _, c := range all {
		if c.failed {
			return fmt.Errorf("%s fails", strings.Join(b.argv, " "))
		}
		peak = max(peak, c.peakKB)
	}
	fmt.Printf("%.1f %.1f %d\n", ms(at(sorted(all, func(c call) time.Duration { return c.wall }), 0.5)),
		ms(at(sorted(all, func(c call) time.Duration { return c.cpu }), 0.5)), peak)
	return nil
}

func sorted(all []call, of func(call) time.Duration) []time.Duration {
	out := make([]time.Duration, len(all))
	for i, c := range all {
		out[i] = of(c)
	}
	slices.Sort(out)
	return out
}

// at gives the value below which the share q of a sorted list lies.
func at(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
