package devcluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

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

// BenchmarkPages measures what people wait for first, of a reader who has 100,000 pending jobs, and of 2,000 nodes with
// 8 GPUs each: the pages, what the script asks for the picture of all GPUs, and the queue. Bytes are those that are
// sent, without compression.
func BenchmarkPages(b *testing.B) {
	const jobs, nodes = 100_000, 2000
	c := devcluster.Start(b, devcluster.Options{Nodes: 1, HTTP: true, NoDbd: true,
		Conf: fmt.Sprintf("MaxJobCount=1000000\nNodeName=big[0001-%d] CPUs=64 RealMemory=500000 Gres=gpu:h100:8\n", nodes)})
	cl := c.Client()
	defer cl.Close()
	args := make([][]string, proto.MaxEachJobs)
	for left := jobs; left > 0; left -= len(args) {
		for i := range args {
			args[i] = []string{fmt.Sprint(left - i)}
		}
		sp := &model.Spec{Name: "train", WorkDir: "/tmp", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, LimitS: 3600,
			Command: "train.sh", UID: uint32(os.Getuid()), Begin: model.Time(time.Now().Add(time.Hour).UnixMilli())}
		rq := &proto.SubmitEachRequest{Args: args[:min(left, len(args))], Submit: &proto.SubmitRequest{
			RequestID: fmt.Sprint("pages-", left), Spec: sp, Script: []byte("#!/bin/sh\ntrue\n"), Env: []byte("PATH=/bin\x00")}}
		if err := cl.Call(proto.KindSubmitEach, rq, &proto.SubmitEachReply{}); err != nil {
			b.Fatal(err)
		}
	}
	web := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.Dir, "run", "http-ctl1"))
	}}}
	defer web.CloseIdleConnections()
	for _, x := range [][2]string{{"my-jobs", "/"}, {"queue", "/queue"}, {"gpus", "/gpus"},
		{"picture", "/gpus.json?by=use"}, {"picture-by-user", "/gpus.json?by=user"}} {
		b.Run(x[0], func(b *testing.B) {
			sent := int64(0)
			for b.Loop() {
				got, err := web.Get("http://localhost" + x[1])
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, got.Body)
				_ = got.Body.Close() // it was read
				if err != nil || got.StatusCode != http.StatusOK {
					b.Fatal(got.Status, err)
				}
				sent += n
			}
			b.ReportMetric(float64(sent)/float64(b.N), "bytes/page")
		})
	}
	if chromium, err := exec.LookPath("chromium"); err == nil {
		b.Run("picture-drawn", func(b *testing.B) { benchPicture(b, newBrowser(b, chromium, c), nodes*8) })
	}
}

// benchPicture measures how long a browser takes to draw the picture of all GPUs again, as it does when the window
// changes: the script's part, and until the frame is shown.
func benchPicture(b *testing.B, at *browser, gpus int) {
	at.run("the picture", chromedp.EmulateViewport(1440, 900), chromedp.Navigate(at.url+"/gpus"),
		chromedp.WaitVisible(fmt.Sprintf(`canvas[data-cells="%d"]`, gpus)))
	const draw = `new Promise((done) => {
		const begun = performance.now();
		dispatchEvent(new Event("resize"));
		const script = performance.now() - begun;
		requestAnimationFrame(() => requestAnimationFrame(() => done([script, performance.now() - begun])));
	})`
	var script, frame float64
	for b.Loop() {
		var took []float64
		at.run("drawing", chromedp.Evaluate(draw, &took, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
			return p.WithAwaitPromise(true)
		}))
		script, frame = script+took[0], frame+took[1]
	}
	b.ReportMetric(script/float64(b.N), "script-ms")
	b.ReportMetric(frame/float64(b.N), "frame-ms")
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
