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
	"sync"

	"gbatch/ctld/rest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Facade serves /api/v1.
type Facade struct {
	Cluster rest.Cluster

	once sync.Once
	spec json.RawMessage
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
	who := v.Who
	if who == nil { // of what is open to everybody
		who = &proto.Caller{UID: model.NoID, GID: model.NoID}
	}
	for _, t := range routes() {
		want := strings.Split(t.path[1:], "/")
		id := ""
		if t.run == nil || !slices.EqualFunc(want, words, func(a, b string) bool {
			if strings.HasPrefix(a, "{") {
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
		q := &request{ctx: r.Context(), f: f, r: r, who: who}
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
