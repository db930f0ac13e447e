package devcluster_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// planted is in the name of everything that a stranger must not see.
const planted = "planted"

// secretCluster is a cluster in which everything that has a name is root's, and called planted.
type secretCluster struct {
	*devcluster.Cluster
	t    *testing.T
	w    *web
	jobs map[string]string // numbers of jobs, by what they are
}

// privateAll hides all that PrivateData can hide.
const privateAll = "PrivateData=accounts,events,jobs,nodes,partitions,reservations,usage,users\n"

// privateJobs hides what is of users, not what is of machines.
const privateJobs = "PrivateData=accounts,jobs,reservations,usage,users\n"

func newSecrets(t *testing.T, hides string) *secretCluster {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 1, CPUs: 8, Gres: "gpu:a100:4",
		Samples:    300 * time.Millisecond,
		Conf:       hides + "PriorityType=priority/multifactor\n",
		Partitions: "PartitionName=main Nodes=n1 Default=YES\nPartitionName=planted_part Nodes=n1\n"})
	s := &secretCluster{Cluster: c, t: t, w: newWeb(t, c, "ctl1"), jobs: map[string]string{}}
	w := s.w
	w.ok("POST", "/slurmdb/v0.0.44/accounts_association/",
		`{"association_condition":{"accounts":["planted_acct"],"clusters":["dev"],"association":{"parent":"root"}},`+
			`"account":{"description":"planted"}}`)
	w.ok("POST", "/slurmdb/v0.0.44/users_association/", `{"association_condition":{"accounts":["planted_acct"],`+
		`"users":["root","planted_user"]},"user":{}}`)
	const more = `,"account":"planted_acct","comment":"planted","tres_per_job":"gres/gpu:2"`
	s.jobs["runs"] = w.submit(planted+"_runs", "sleep 300", more+`,"partition":"planted_part"`)
	s.jobs["held"] = w.submit(planted+"_held", "true # planted", more+`,"hold":true`)
	s.jobs["ends"] = w.submit(planted+"_ends", "true", more)
	s.jobs["waits"] = w.submit(planted+"_waits", "true", strings.Replace(more, "gpu:2", "gpu:4", 1))
	w.until(c, s.jobs["runs"], "RUNNING")
	w.until(c, s.jobs["ends"], "COMPLETED")
	s.trigger()
	w.ok("POST", "/slurm/v0.0.44/reservation", fmt.Sprintf(`{"name":"planted_resv","start_time":{"set":true,"number":%d},`+
		`"duration":{"set":true,"number":60},"node_list":["n1"],"users":["root"],"flags":["IGNORE_JOBS"]}`,
		time.Now().Unix()+7200))
	c.Wait("gdbd has samples", func() error {
		if _, _, text := w.do("GET", "/api/v1/history/account", ""); !strings.Contains(text, planted) {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	c.Wait("gdbd has the record", func() error {
		_, _, text := w.do("GET", "/slurmdb/v0.0.44/job/"+s.jobs["ends"], "")
		if !strings.Contains(text, planted) {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	return s
}

// trigger sets one of root's, for a job.
func (s *secretCluster) trigger() {
	var id model.JobID
	if _, err := fmt.Sscan(s.jobs["held"], &id); err != nil {
		s.t.Fatal(err)
	}
	if err := s.Client().Call(proto.KindSetTrigger, &proto.SetTriggerRequest{Of: model.TriggerJob, Job: id,
		Events: model.OnFini, Program: "/bin/true planted"}, &proto.Empty{}); err != nil {
		s.t.Fatal(err)
	}
}

// question has the requests of one kind.
type question struct {
	kind uint16
	rqs  []proto.Message
}

// questions has all requests that only read, each as wide as it can be and about what is hidden.
func (s *secretCluster) questions() []question {
	var refs []model.JobRef
	for _, id := range s.jobs {
		var n uint32
		if _, err := fmt.Sscan(id, &n); err != nil {
			s.t.Fatal(err)
		}
		refs = append(refs, model.JobRef{Job: model.JobID(n), Task: model.NoTask})
	}
	slices.SortFunc(refs, func(a, b model.JobRef) int { return int(a.Job) - int(b.Job) })
	first := refs[0].Job
	byJob := proto.JobFilter{Jobs: refs}
	byAccount := proto.JobFilter{Accounts: []string{"planted_acct"}}
	now := model.Time(time.Now().UnixMilli())
	list := []question{
		{proto.KindPing, []proto.Message{&proto.Empty{}}},
		{proto.KindJobs, []proto.Message{&proto.JobsRequest{}, &proto.JobsRequest{Filter: byJob, Positions: true},
			&proto.JobsRequest{Filter: byAccount}}},
		{proto.KindNodes, []proto.Message{&proto.NodesRequest{Units: true}, &proto.NodesRequest{Names: []string{"n1"}}}},
		{proto.KindPartitions, []proto.Message{&proto.Empty{}}},
		{proto.KindPools, []proto.Message{&proto.Empty{}}},
		{proto.KindMoney, []proto.Message{&proto.MoneyRequest{}, &proto.MoneyRequest{Invoices: true,
			Accounts: []string{"planted_acct"}}}},
		{proto.KindConfig, []proto.Message{&proto.Empty{}}},
		{proto.KindWait, []proto.Message{&proto.WaitRequest{Job: first + 2}}},
		{proto.KindAcct, []proto.Message{&proto.AcctRequest{}, &proto.AcctRequest{Jobs: refs, Duplicates: true},
			&proto.AcctRequest{Accounts: []string{"planted_acct"}}}},
		{proto.KindShares, []proto.Message{&proto.SharesRequest{}, &proto.SharesRequest{Accounts: []string{"planted_acct"}},
			&proto.SharesRequest{Names: []string{"planted_user"}, Users: []uint32{0}}}},
		{proto.KindDiag, []proto.Message{&proto.Empty{}}},
		{proto.KindScript, []proto.Message{&proto.ScriptRequest{Job: first + 1}}},
		{proto.KindPresent, []proto.Message{&proto.PresentRequest{Job: first + 1}}},
		{proto.KindDump, []proto.Message{&proto.DumpRequest{}}},
		{proto.KindAccounts, []proto.Message{&proto.AccountsRequest{}}},
		{proto.KindPrio, []proto.Message{&proto.PrioRequest{}, &proto.PrioRequest{Filter: byJob}}},
		{proto.KindWhy, []proto.Message{&proto.WhyRequest{Jobs: refs}, &proto.WhyRequest{Mine: true}}},
		{proto.KindReservations, []proto.Message{&proto.Empty{}}},
		{proto.KindStat, []proto.Message{&proto.StatRequest{Jobs: refs[:1]}}},
		{proto.KindSteps, []proto.Message{&proto.StepsRequest{}, &proto.StepsRequest{Filter: byJob}}},
		{proto.KindTail, []proto.Message{&proto.TailRequest{Job: first + 1}}},
		{proto.KindDaemon, []proto.Message{&proto.DaemonRequest{Node: "n1"}}},
		{proto.KindPeers, []proto.Message{&proto.PeersRequest{Nodes: []string{"n1"}}}},
		{proto.KindControllers, []proto.Message{&proto.Empty{}}},
		{proto.KindDoctor, []proto.Message{&proto.Empty{}}},
		{proto.KindCerts, []proto.Message{&proto.Empty{}}},
		{proto.KindTriggers, []proto.Message{&proto.Empty{}}},
		{proto.KindCrontab, []proto.Message{&proto.CrontabRequest{}, &proto.CrontabRequest{User: "root"}}},
	}
	var reports []proto.Message
	for what := proto.ReportUsage; what <= proto.ReportEvents; what++ {
		for _, by := range []proto.ReportBy{0, proto.ByAccount, proto.ByUser, proto.ByAccount | proto.ByUser, proto.ByQOS,
			proto.ByPartition, proto.BySize, proto.ByResv, proto.ByWCKey} {
			reports = append(reports, &proto.ReportRequest{What: what, By: by, Start: now - 24*3600_000, End: now + 24*3600_000})
		}
	}
	var history []proto.Message
	for of := proto.HistoryCluster; of <= proto.HistoryJob; of++ {
		for _, names := range [][]string{nil, {"planted_acct", "planted_part", "n1", "n1/", fmt.Sprint(first)}} {
			history = append(history, &proto.HistoryRequest{Of: of, Names: names})
		}
	}
	list = append(list, question{proto.KindReport, reports}, question{proto.KindHistory, history})
	had := map[uint16]bool{proto.KindStale: true, proto.KindToken: true} // another request in it; one's own
	for _, q := range list {
		had[q.kind] = true
	}
	for kind := range proto.KindReport + 100 {
		rq := proto.RequestOf(kind)
		if rq.Name != "" && rq.At == proto.AtLeader && rq.Effect != proto.Changes && !had[kind] {
			s.t.Errorf("no stranger asks a request of kind %d (%s)", kind, rq.Name)
		}
	}
	return list
}

// as calls f on a thread whose sockets are of another user.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		keep := ^uintptr(0)
		for _, call := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
			if _, _, e := syscall.RawSyscall(call, keep, uintptr(uid), keep); e != 0 {
				done <- e
				return
			}
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// answers gives all bytes that answer a request.
func answers(cl *client.Client, kind uint16, rq proto.Message) (all []byte) {
	if err := cl.Stream(kind, rq, func(body []byte) error {
		all = append(all, body...)
		return nil
	}); err != nil {
		all = fmt.Append(all, err)
	}
	return all
}

// TestStrangersSeeNothingPlanted: with PrivateData, nothing that another user has or named is in any answer to a user,
// be it to a command, over REST, the small interface or on a page. Root sees it, in the same answers.
func TestStrangersSeeNothingPlanted(t *testing.T) {
	if syscall.Geteuid() != 0 {
		t.Skip("skipped: only root has another user's sockets")
	}
	for name, hides := range map[string]string{"all": privateAll, "jobs": privateJobs} {
		t.Run(name, func(t *testing.T) {
			s := newSecrets(t, hides)
			secret := func(b []byte) bool {
				return bytes.Contains(b, []byte(planted)) &&
					!(name == "jobs" && onlyMachines(string(b)))
			}
			rooted := map[uint16]bool{}
			list := s.questions()
			for _, q := range list {
				for _, rq := range q.rqs {
					rooted[q.kind] = rooted[q.kind] || bytes.Contains(answers(s.Client(), q.kind, rq), []byte(planted))
				}
			}
			as(t, 65534, func() {
				cl := s.Client()
				defer cl.Close()
				for _, q := range list {
					for i, rq := range q.rqs {
						if got := answers(cl, q.kind, rq); secret(got) {
							t.Errorf("%s %d: a stranger reads %.3000q", proto.RequestOf(q.kind).Name, i, got)
						}
					}
				}
				s.holders(cl)
			})
			for _, kind := range []uint16{proto.KindJobs, proto.KindAcct, proto.KindShares, proto.KindAccounts, proto.KindPrio,
				proto.KindReservations, proto.KindScript, proto.KindReport, proto.KindPartitions, proto.KindConfig,
				proto.KindDump, proto.KindHistory} {
				if !rooted[kind] {
					t.Errorf("root does not read %q in an answer to %s either", planted, proto.RequestOf(kind).Name)
				}
			}
			s.web(secret)
		})
	}
}

// onlyMachines reports whether what is planted in an answer is a partition's name only.
func onlyMachines(text string) bool {
	return !strings.Contains(strings.ReplaceAll(text, "planted_part", ""), planted)
}

// holders checks that nodes don't tell whose their GPUs are.
func (s *secretCluster) holders(cl *client.Client) {
	_ = cl.Stream(proto.KindNodes, &proto.NodesRequest{Units: true}, func(body []byte) error { // or refused
		var chunk proto.NodesChunk
		if err := proto.DecodeWith(body, &chunk, wire.AsIs); err != nil {
			s.t.Error(err)
		}
		for _, i := range chunk.Nodes {
			for _, h := range i.Holders {
				if h.Job != proto.HiddenJob {
					s.t.Errorf("a stranger reads that job %s has %s:%d", h.Job, h.Name, h.Index)
				}
			}
			for _, id := range i.Node.Jobs {
				if id != model.HiddenJob {
					s.t.Errorf("a stranger reads that job %d is on %s", id, i.Node.Def.Name)
				}
			}
			if len(i.Holders) != 2 || len(i.Node.Jobs) != 1 {
				s.t.Errorf("a stranger does not read that two GPUs are in use by one job: %v, %v", i.Holders, i.Node.Jobs)
			}
		}
		return nil
	})
}

// web reads everything over HTTP as a stranger.
func (s *secretCluster) web(secret func([]byte) bool) {
	s.t.Helper()
	_, spec, _ := s.w.do("GET", "/openapi/v3", "")
	_, small, _ := s.w.do("GET", "/api/v1/openapi.json", "")
	paths := []string{"/metrics", "/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler",
		"/metrics/jobs-users-accts", "/", "/gpus", "/gpus?by=user", "/gpus.json", "/gpus.json?by=user", "/gpus.json?by=job",
		"/queue", "/queue?all=1", "/shares", "/timeline", "/operators", "/submit"}
	for _, doc := range []map[string]any{spec, small} {
		list, _ := doc["paths"].(map[string]any)
		if len(list) == 0 {
			s.t.Fatalf("no paths in %v", doc)
		}
		for _, path := range slices.Sorted(maps.Keys(list)) {
			if get, _ := list[path].(map[string]any); get["get"] != nil && !strings.HasSuffix(path, "/events") {
				paths = append(paths, path)
			}
		}
	}
	seen := 0
	var own proto.TokenReply
	if err := s.Client().Call(proto.KindToken, &proto.TokenRequest{User: "nobody"}, &own); err != nil {
		s.t.Fatal(err)
	}
	for _, job := range s.jobs {
		names := strings.NewReplacer("{job_id}", job, "{node_name}", "n1", "{partition_name}", "planted_part",
			"{reservation_name}", "planted_resv", "{qos}", "normal", "{cluster_name}", "dev", "{account_name}", "planted_acct",
			"{id}", job, "{kind}", "job", "{name}", "planted_user", "{task_id}", "task-"+job)
		for _, path := range append([]string{"/job/" + job, "/why/" + job, "/api/v1/tasks/task-" + job}, paths...) {
			at := names.Replace(path)
			if strings.HasSuffix(at, "/association/") {
				at += "?account=planted_acct"
			}
			if strings.Contains(at, "{") {
				s.t.Errorf("%s: what should be in its place is not known here", path)
			}
			_, _, text := s.w.do(http.MethodGet, at, "", "X-SLURM-USER-TOKEN", own.Token, "Cookie",
				"gbatch_token="+own.Token)
			// what was asked may be said again
			for _, name := range []string{"planted_acct", "planted_resv", "planted_user", "planted_part"} {
				if strings.Contains(at, name) {
					text = strings.ReplaceAll(text, name, "")
				}
			}
			if (path == "/" || path == "/queue") && !strings.Contains(text, `<span class="who">nobody</span>`) {
				s.t.Errorf("GET %s: nobody is not signed in: %.2000s", at, text)
			}
			if secret([]byte(text)) {
				s.t.Errorf("GET %s: a stranger reads %.2000s", at, text)
			}
			if _, _, text := s.w.do(http.MethodGet, at, ""); strings.Contains(text, planted) {
				seen++
			}
		}
	}
	if seen < 40 {
		s.t.Errorf("root reads %q in %d answers only", planted, seen)
	}
}
