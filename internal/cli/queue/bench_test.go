package queue

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// tenThousand gives a queue of 10,000 typical pending jobs, in encoded chunks.
func tenThousand(tb testing.TB) (jobs []*model.Job, chunks [][]byte) {
	chunk := &proto.JobsChunk{Now: clitest.DemoNow}
	flush := func() {
		body, err := proto.Encode(chunk)
		if err != nil {
			tb.Fatal(err)
		}
		chunks = append(chunks, body)
		chunk.Jobs = nil
	}
	for i := range 10_000 {
		user := fmt.Sprintf("user%02d", i%40)
		j := &model.Job{ID: model.JobID(100_000 + i), Task: model.NoTask, State: model.Pending, Reason: model.ReasonPriority,
			Priority: uint32(4_294_900_000 - i*7919%100_000), Submit: clitest.DemoNow - model.Time(i)*1000,
			Eligible: clitest.DemoNow, Attempt: 1,
			Spec: &model.Spec{Name: fmt.Sprintf("train-%d", i), UID: uint32(1000 + i%40), GID: 100, Groups: []uint32{100, 1001},
				User: user, Group: "users",
				Account: "physics", QOS: "normal", Partitions: []string{[]string{"gpu", "batch", "long"}[i%3]},
				Script: strings.Repeat("a", 64),
				Env:    strings.Repeat("b", 64), Command: "/home/" + user + "/project/run.sh",
				Submit:  "gsubmit -n1 --gres=gpu:1 run.sh",
				WorkDir: "/home/" + user + "/project", StdIn: "/dev/null", StdOut: "/home/" + user + "/project/slurm-%j.out",
				Host:  "login1",
				Umask: 18, Limits: make([]model.RLimit, 9), MinNodes: 1, Tasks: 1, CPUsPerTask: 1, LimitS: 3600,
				Gres: []model.GresReq{{Name: "gpu", Count: 1}}}}
		jobs = append(jobs, j)
		if chunk.Jobs = append(chunk.Jobs, j); len(chunk.Jobs) == proto.ChunkJobs {
			flush()
		}
	}
	flush()
	return jobs, chunks
}

// BenchmarkQueue10000 measures gqueue without the socket: it reads, sorts and prints 10,000 encoded jobs.
func BenchmarkQueue10000(b *testing.B) {
	_, chunks := tenThousand(b)
	lang := jobtext.JobLanguage()
	p, err := lang.Template(queueFormat)
	if err != nil {
		b.Fatal(err)
	}
	keys, err := format.ParseSort(queueSort, "Ptp")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		t := newQueueTable(p, &lang, keys)
		view := &jobtext.JobView{Times: jobtext.Times{Now: time.UnixMilli(int64(clitest.DemoNow))},
			BitLen: jobtext.DefaultBitLen}
		rows := &jobtext.JobRows{View: view}
		var reader jobReader
		for _, body := range chunks {
			err := reader.each(body, func(now model.Time, j *model.Job) error {
				view.At = now
				rows.Each(j, t.add)
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := t.write(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkQueueProcess10000 measures the whole command as a process, against a controller that has the list encoded:
// its time and peak memory.
func BenchmarkQueueProcess10000(b *testing.B) {
	dir := b.TempDir()
	bin := filepath.Join(dir, "gqueue")
	build := exec.Command("go", "build", "-o", bin, "gbatch/cmd/gcli")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	f := clitest.New(b, Gqueue)
	_, f.Chunks = tenThousand(b)
	var peak int64
	var cpu time.Duration
	for b.Loop() {
		cmd := exec.Command(bin)
		cmd.Env = []string{"GBATCH_CONF=" + f.Env["GBATCH_CONF"]}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		// The process has read and sorted all jobs when the first lines come. The rest does not fit into the pipe, so
		// the process still runs and can be measured. (Its rusage begins with the memory of the process that started
		// it.)
		some, err := io.ReadAll(io.LimitReader(out, 500<<10))
		if err != nil {
			b.Fatal(err)
		}
		peak = max(peak, peakKiB(b, cmd.Process.Pid))
		rest, err := io.ReadAll(out)
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || bytes.Count(some, []byte("\n"))+bytes.Count(rest, []byte("\n")) != 10_001 {
			b.Fatalf("%v, %d bytes", err, len(some)+len(rest))
		}
		cpu += cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()
	}
	b.ReportMetric(float64(peak)/1024, "MiB")
	b.ReportMetric(cpu.Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// peakKiB gives a process's peak memory.
func peakKiB(b *testing.B, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var n int64
	if _, err := fmt.Sscan(after, &n); err != nil {
		b.Fatal(err)
	}
	return n
}
