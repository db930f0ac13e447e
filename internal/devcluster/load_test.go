package devcluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// cpu gives this process's CPU time: the daemons', since they run in it.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkJobs measures 5,000 `true` jobs from the first submission to the last record in accounting: submitted
// by real gsubmit processes from eight loops, or as one array.
func BenchmarkJobs(b *testing.B) {
	for _, how := range []string{"separate", "array"} {
		b.Run(how, func(b *testing.B) {
			for b.Loop() {
				benchJobs(b, how, 5000)
			}
		})
	}
}

func benchJobs(b *testing.B, how string, jobs int) {
	c := devcluster.Start(b, devcluster.Options{Nodes: 4, CPUs: 16, Conf: "MaxArraySize=100001\nMaxJobCount=1000000"})
	gsubmit := filepath.Join(devcluster.Commands(b), "gsubmit")
	script := filepath.Join(c.Dir, "true.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntrue\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	submit := func(args ...string) {
		cmd := exec.Command(gsubmit, append(args, "-o", "/dev/null", script)...)
		cmd.Env = append(os.Environ(), "GBATCH_CONF="+c.Conf)
		cmd.Dir = c.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Errorf("gsubmit: %v: %s", err, out)
		}
	}
	begin, before := time.Now(), cpu()
	if how == "array" {
		submit("--array", fmt.Sprintf("1-%d", jobs))
	} else {
		var left atomic.Int64
		left.Store(int64(jobs))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					submit()
				}
			})
		}
		wg.Wait()
	}
	submitted := time.Since(begin)
	cl := c.Client()
	defer cl.Close()
	for {
		n := 0
		err := cl.Stream(proto.KindAcct, &proto.AcctRequest{States: []model.JobState{model.Completed}},
			func(body []byte) error {
				var chunk proto.RecordsChunk
				if err := proto.Decode(body, &chunk); err != nil {
					return err
				}
				n += len(chunk.Records)
				return nil
			})
		if err != nil {
			b.Fatal(err)
		}
		if n >= jobs {
			break
		}
		if time.Since(begin) > 2*time.Minute {
			b.Fatalf("%d of %d jobs are accounted after two minutes", n, jobs)
		}
		time.Sleep(100 * time.Millisecond) // the pace of looking
	}
	wall := time.Since(begin)
	b.ReportMetric(float64(jobs)/wall.Seconds(), "jobs/s")
	b.ReportMetric(float64(jobs)/submitted.Seconds(), "submits/s")
	b.ReportMetric(float64((cpu()-before).Milliseconds())/float64(jobs), "daemon-ms/job")
}
