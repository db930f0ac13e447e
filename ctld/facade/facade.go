package facade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"gbatch/ctld/rest"
	"gbatch/internal/clustertext"
	"gbatch/internal/proto"
)

// Facade serves /api/v1.
type Facade struct {
	Cluster rest.Cluster
}

// Prefix is the path of everything here.
const Prefix = "/api/v1"

// Limits.
const (
	maxBody  = 1 << 20
	maxTasks = 10_000  // in a list
	maxNodes = 100_000 // that are looked at
)

// wrong is an error with its status.
type wrong struct {
	status int
	text   string
}

func (w *wrong) Error() string { return w.text }

func bad(format string, a ...any) error {
	return &wrong{http.StatusBadRequest, fmt.Sprintf(format, a...)}
}

// route is a path; {id} in it stands for a task's number.
type route struct {
	method, path string
	about        string
	status       int
	run          func(q *request, id string) (any, error)
	answer       any         // a value of the type that run gives; nil: any object
	body         any         // likewise of what clients send; nil: nothing
	query        [][2]string // parameters, and what they are
}

func routes() []route {
	const ok = http.StatusOK
	list := [][2]string{{"status", "pending, running, success or failed"}, {"user", "a user's name"},
		{"limit", "at most so many, 1 to 10000"}}
	return []route{
		{"GET", "/tasks", "lists tasks", ok, (*request).tasks, tasksReply{}, nil, list},
		{"POST", "/tasks", "submits a task", http.StatusCreated, (*request).submit, submitted{}, submission{}, nil},
		{"GET", "/tasks/{id}", "one task", ok, (*request).task, &Task{}, nil, nil},
		{"DELETE", "/tasks/{id}", "cancels a task", ok, (*request).cancel, cancelled{}, nil, nil},
		{"GET", "/gpus", "GPUs: idle, busy or offline", ok, (*request).gpus, gpusReply{}, nil, nil},
		{"GET", "/quota", "GPUs of tasks of high (online) and low (batch) priority", ok, (*request).quota, quotaReply{}, nil,
			nil},
		{"GET", "/queue-status", "the queue by GPUs, QOS and capacity", ok, (*request).queue, queueReply{}, nil, nil},
		{"GET", "/pools", "partitions as pools of GPUs", ok, (*request).pools, poolsReply{}, nil, nil},
		{"GET", "/history/{id}", "what was measured of cluster, partition, account, qos, node, gpu or job", ok,
			(*request).history, nil, nil, [][2]string{{"name", "names, with commas between"}, {"job", "for the history of gpu"},
				{"start", "a time"}, {"end", "a time"}, {"step", "seconds"}}},
		{"GET", "/balance", "the money of accounts", ok, (*request).balances,
			listOf("balances", clustertext.BalanceJSON(), nil), nil, moneyQuery[:1]},
		{"GET", "/usage", "what runs cost that began in a time and have ended, by account and resource", ok, (*request).usage,
			listOf("usage", clustertext.CostJSON(), besideUsage()), nil, slices.Concat(moneyQuery, usageQuery)},
		{"GET", "/invoices", "invoices that were made, or drafts", ok, (*request).invoices,
			listOf("invoices", clustertext.InvoiceJSON(), nil), nil, slices.Concat(moneyQuery, invoiceQuery)},
		{"POST", "/experiments/{id}/queue", "puts a held job into the queue", ok, (*request).enqueue, enqueued{}, nil, nil},
		{"GET", "/experiments/queue-status", "the same as /queue-status", ok, (*request).queue, queueReply{}, nil, nil},
		{"GET", "/openapi", "this specification", ok, (*request).openapi, nil, nil, nil},
		{"GET", "/openapi.json", "the same", ok, (*request).openapi, nil, nil, nil},
	}
}

// request is one request.
type request struct {
	ctx context.Context
	f   *Facade
	r   *http.Request
	who *proto.Caller
}

// Serve answers a request; its path begins with Prefix.
func (f *Facade) Serve(w http.ResponseWriter, r *http.Request, v *rest.Visitor) {
	words := strings.Split(strings.Trim(strings.TrimPrefix(v.Path, Prefix), "/"), "/")
	var methods []string
	for _, t := range routes() {
		want := strings.Split(t.path[1:], "/")
		id := ""
		if !slices.EqualFunc(want, words, func(a, b string) bool {
			if a == "{id}" {
				id = b
				return b != ""
			}
			return a == b
		}) {
			continue
		}
		if methods = append(methods, t.method); t.method != r.Method {
			continue
		}
		q := &request{ctx: r.Context(), f: f, r: r, who: v.Who}
		b, err := q.answer(t, id)
		if err != nil {
			var own *wrong
			status, text := http.StatusInternalServerError, err.Error()
			if errors.As(err, &own) {
				status = own.status
			} else {
				status, text = rest.StatusOf(err)
			}
			reply(w, status, failure{Error: text})
			return
		}
		write(w, t.status, b)
		return
	}
	if len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		reply(w, http.StatusMethodNotAllowed, failure{Error: "this path is for " + strings.Join(methods, " and ")})
		return
	}
	reply(w, http.StatusNotFound, failure{Error: "there is no such path; " + Prefix + "/openapi.json lists them"})
}

// failure is the answer to what does not work.
type failure struct {
	Success bool   `json:"success"`
	Error   string `json:"error"`
}

// answer makes a route's answer, and waits until its user may move so much.
func (q *request) answer(t route, id string) ([]byte, error) {
	answer, err := t.run(q, id)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(answer)
	if err != nil { // of texts and numbers
		return nil, err
	}
	return b, rest.Moves(q.ctx, q.who, len(b))
}

// reply writes a short answer.
func reply(w http.ResponseWriter, status int, answer any) {
	b, err := json.Marshal(answer)
	if err != nil { // of texts and numbers
		b, status = []byte(`{"success":false,"error":"internal error"}`), http.StatusInternalServerError
	}
	write(w, status, b)
}

func write(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who has gone needs no answer
}

// ask makes a request with one answer.
func (q *request) ask(kind uint16, rq, answer proto.Message) error {
	return q.stream(kind, rq, func(part []byte) error { return proto.Decode(part, answer) })
}

// stream makes a request with an answer in parts.
func (q *request) stream(kind uint16, rq proto.Message, each func(part []byte) error) error {
	_, err := q.f.Cluster.Ask(q.ctx, q.who, kind, rq, each)
	return err
}

// body reads what was sent. Members that nothing reads are errors.
func (q *request) body(to any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, q.r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil && d.Decode(new(any)) != io.EOF {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return bad("the body can't be read: %v", err)
	}
	return nil
}
