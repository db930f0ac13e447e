package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// overHTTP makes a request over HTTP with a token; it has as long as a patient client gives it.
func overHTTP(method, url, body, token string) (status int, answer string, err error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("X-SLURM-USER-TOKEN", token)
	r.Header.Set("Content-Type", "application/json")
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer got.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(got.Body)
	return got.StatusCode, string(b), err
}

// ageOfJobs gives what a controller says of how old its list of jobs is; "": it says nothing.
func ageOfJobs(t *testing.T, url, token string) string {
	t.Helper()
	r, err := http.NewRequest("GET", url+"/slurm/v0.0.44/jobs/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-SLURM-USER-TOKEN", token)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got.Body.Close() != nil || got.StatusCode != http.StatusOK {
		t.Fatal(got.Status)
	}
	return got.Header.Get("X-Gbatch-Age-Ms")
}

// TestHTTPOfFollowers: a token that is revoked counts at no controller any more when the revocation returns; and a
// client of a follower goes on while the leader is killed: nothing fails, and each submission is one job. A follower's
// list says how old it is.
func TestHTTPOfFollowers(t *testing.T) {
	t.Parallel()
	c, _, _ := failoverCluster(t)
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]string{}
	for _, d := range status(t, c.Dir).Daemons {
		if d.Role == RoleController {
			at[d.Name] = d.HTTP
		}
	}
	if len(at) != 3 {
		t.Fatalf("controllers: %v", at)
	}
	token := func() string {
		t.Helper()
		var reply proto.TokenReply
		if err := cl.Call(proto.KindToken, &proto.TokenRequest{}, &reply); err != nil {
			t.Fatal(err)
		}
		return reply.Token
	}
	const rounds = 10
	for range rounds {
		tok := token()
		for name, url := range at {
			if status, answer, err := overHTTP("GET", url+"/slurm/v0.0.44/ping", "", tok); status != http.StatusOK {
				t.Fatalf("%s with a token: %d %v %s", name, status, err, answer)
			}
		}
		revoke := &proto.EditTokensRequest{Revoke: []string{me.Username}}
		if err := cl.Call(proto.KindEditTokens, revoke, &proto.EditTokensReply{}); err != nil {
			t.Fatal(err)
		}
		for name, url := range at {
			status, answer, err := overHTTP("GET", url+"/slurm/v0.0.44/ping", "", tok)
			if status != http.StatusNetworkAuthenticationRequired {
				t.Errorf("%s with a token that was revoked: %d %v %.100s", name, status, err, answer)
			}
		}
	}

	name, leader := leaderOf(t, c)
	follower, tok := "", token()
	for other, url := range at {
		age := ageOfJobs(t, url, tok)
		if ms, err := strconv.Atoi(age); other == name && age != "" ||
			other != name && (err != nil || ms < 1 || ms > 3000) {
			t.Errorf("%s leads; the list of %s is %q ms old", name, other, age)
		}
		if other != name {
			follower = url
		}
	}
	var ids []int
	longest := time.Duration(0)
	const before, all = 5, 25
	for i := range all {
		if i == before {
			if err := leader.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		body := fmt.Sprintf(`{"script":"#!/bin/sh\ntrue\n","job":{"name":"of%d","hold":true,"environment":["PATH=/bin"],`+
			`"current_working_directory":"/tmp"}}`, i)
		status, answer, err := overHTTP("POST", follower+"/slurm/v0.0.44/job/submit", body, tok)
		var made struct {
			JobID int `json:"job_id"`
		}
		if err == nil {
			err = json.Unmarshal([]byte(answer), &made)
		}
		if status != http.StatusOK || err != nil || made.JobID == 0 {
			t.Fatalf("submission %d: %d %v %s", i, status, err, answer)
		}
		ids = append(ids, made.JobID)
		status, answer, err = overHTTP("GET", fmt.Sprintf("%s/slurm/v0.0.44/job/%d", follower, made.JobID), "", tok)
		if status != http.StatusOK || !strings.Contains(answer, fmt.Sprintf(`"name":"of%d"`, i)) {
			t.Errorf("job %d is not there after its submission: %d %v %.200s", made.JobID, status, err, answer)
		}
		longest = max(longest, time.Since(begun))
	}
	t.Logf("the longest submission and look at it took %v", longest)
	status, answer, err := overHTTP("GET", follower+"/slurm/v0.0.44/jobs/", "", tok)
	if status != http.StatusOK {
		t.Fatal(status, err, answer)
	}
	for i := range all {
		if n := strings.Count(answer, fmt.Sprintf(`"name":"of%d"`, i)); n != 1 {
			t.Errorf("submission %d made %d jobs", i, n)
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != all {
		t.Errorf("%d submissions got %d numbers", all, n)
	}
}

// A leader that was stopped, and whose successor has taken a submission, does not answer as if it led: who asks as it
// goes on gets the submission too, or is told how old the list is.
func TestHTTPOfDeposedLeader(t *testing.T) {
	t.Parallel()
	c, _, _ := failoverCluster(t)
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.TokenReply
	if err := cl.Call(proto.KindToken, &proto.TokenRequest{}, &reply); err != nil {
		t.Fatal(err)
	}
	name, leader := leaderOf(t, c)
	url := daemon(t, c.Dir, func(d *Daemon) bool { return d.Name == name }).HTTP
	if age := ageOfJobs(t, url, reply.Token); age != "" {
		t.Fatalf("%s leads, and says that its list is %s ms old", name, age)
	}
	if err := leader.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leader.signal(syscall.SIGCONT) }) // it may have ended
	id := submit(t, c, "true\n", func(sp *model.Spec) { sp.HoldReq = true })
	const askers = 20
	type heard struct {
		status    int
		age, list string
		err       error
	}
	answers := make(chan heard, askers)
	var asked sync.WaitGroup
	asked.Add(askers)
	for range askers {
		go func() { // it ends with the answer
			r, err := http.NewRequest("GET", url+"/slurm/v0.0.44/jobs/", http.NoBody)
			if err != nil {
				answers <- heard{err: err}
				return
			}
			r.Header.Set("X-SLURM-USER-TOKEN", reply.Token)
			var once sync.Once
			trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once.Do(asked.Done) }}
			tr := &http.Transport{DisableKeepAlives: true}
			got, err := tr.RoundTrip(r.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
			if err != nil {
				answers <- heard{err: err}
				return
			}
			b, err := io.ReadAll(got.Body)
			answers <- heard{got.StatusCode, got.Header.Get("X-Gbatch-Age-Ms"), string(b), errors.Join(err, got.Body.Close())}
		}()
	}
	asked.Wait() // the kernel has taken the requests
	if err := leader.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range askers {
		a := <-answers
		if a.err != nil || a.status == http.StatusOK && a.age == "" &&
			!strings.Contains(a.list, fmt.Sprintf(`"job_id":%d,`, id)) {
			t.Errorf("the list of %s, which led, lacks job %d and says nothing of its age: %d %v %.200s", name, id, a.status,
				a.err, a.list)
		}
	}
}
