package devcluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"gbatch/internal/devcluster"
)

// event is one of the stream.
type event struct {
	ID, Kind, What, Name, State, User, By string
	Job                                   int
}

// listen opens the stream and gives what comes; headers are names and values in turn.
func (w *web) listen(path string, headers ...string) (<-chan event, func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gbatch"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := w.c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if got.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s", path, got.Status)
	}
	out := make(chan event, 1000)
	go func() {
		defer close(out)
		defer got.Body.Close() //nolint:errcheck // only read
		word := ""
		for in := bufio.NewScanner(got.Body); in.Scan(); {
			if kind, is := strings.CutPrefix(in.Text(), "event: "); is {
				word = kind
			}
			data, is := strings.CutPrefix(in.Text(), "data: ")
			if !is {
				continue
			}
			ev := event{Kind: word}
			if word == "" {
				if err := json.Unmarshal([]byte(data), &ev); err != nil {
					w.t.Error(err)
				}
			}
			word = ""
			select {
			case out <- ev:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, cancel
}

// await reads events until one matches, and gives all that came.
func await(t *testing.T, from <-chan event, what string, is func(e event) bool) (all []event) {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		select {
		case e, ok := <-from:
			if all = append(all, e); !ok || is(e) {
				if !ok {
					t.Fatalf("the stream ended before %s: %+v", what, all)
				}
				return all
			}
		case <-end:
			t.Fatalf("no %s in %+v", what, all)
		}
	}
}

// TestEvents: what happens is told by every controller under the same numbers, to those who may know, and a client goes
// on at another controller when its own has ended.
func TestEvents(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Controllers: 3, Conf: "PrivateData=jobs,nodes"})
	ws := map[string]*web{}
	for _, name := range []string{"ctl1", "ctl2", "ctl3"} {
		ws[name] = newWeb(t, c, name)
	}
	first := ws["ctl1"]
	streams := map[string]<-chan event{}
	for name, w := range ws {
		streams[name], _ = w.listen("/api/v1/events?since=0")
	}
	nobody, _ := first.listen("/api/v1/events", "X-SLURM-USER-NAME", "nobody")
	await(t, nobody, "hello", func(e event) bool { return e.Kind == "hello" })
	const job = `{"script":"#!/bin/sh\nexit 3\n","job":{"name":"told","environment":["PATH=/bin:/usr/bin"],` +
		`"current_working_directory":"/tmp","standard_output":"/dev/null"}}`
	first.ok("POST", "/slurm/v0.0.44/job/submit", job)
	first.ok("POST", "/slurm/v0.0.44/node/n2", `{"state":["DRAIN"],"reason":"a test"}`)
	drained := false
	finished := func(e event) bool {
		drained = drained || e.Kind == "node_drain"
		return e.Kind == "task_finished" && e.Job == 2
	}
	first.ok("POST", "/slurm/v0.0.44/job/submit", job)
	var last event
	ids := map[string]string{}
	for name, s := range streams {
		drained = false
		all := await(t, s, "the end of job 2", finished)
		seen := ""
		for _, e := range all {
			if e.Job == 2 {
				seen += e.Kind + " " + e.State + " " + e.ID + "\n"
				last = e
			}
		}
		ids[name] = seen
		if !strings.HasPrefix(seen, "task_submitted PENDING") || !strings.Contains(seen, "task_scheduled") ||
			last.User != "root" || last.State != "FAILED" || !drained {
			t.Errorf("%s: %s %+v", name, seen, all)
		}
	}
	if ids["ctl1"] != ids["ctl2"] || ids["ctl1"] != ids["ctl3"] {
		t.Errorf("controllers number differently: %v", ids)
	}
	c.StopDaemon("ctld-ctl1")
	w := ws["ctl2"]
	more, _ := w.listen("/api/v1/events?since=0&job=2,3", "Last-Event-ID", last.ID)
	w.ok("POST", "/slurm/v0.0.44/job/submit", strings.Replace(job, "exit 3", "exit 0", 1))
	all := await(t, more, "the end of job 3", func(e event) bool { return e.Kind == "task_finished" })
	for _, e := range all {
		if e.Kind == "gap" || e.Job == 2 {
			t.Errorf("after %s came %+v", last.ID, e)
		}
	}
	for e := range nobody { // it ended with its controller
		if e.Kind != "cut" {
			t.Errorf("nobody saw %+v in spite of PrivateData", e)
		}
	}
}
