package facade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
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
	if err := q.only(t.query); err != nil {
		return nil, err
	}
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

// body reads what was sent, an object. Members that nothing reads are errors.
func (q *request) body(to any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, q.r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil && d.Decode(new(any)) != io.EOF {
		return bad("the body can't be read: something follows the object")
	}
	if err != nil {
		return bad("%s", unreadable(err, to))
	}
	return nil
}

// unreadable says what is wrong with a body that is no JSON of what to is.
func unreadable(err error, to any) string {
	var typ *json.UnmarshalTypeError
	var bad *json.SyntaxError
	var large *http.MaxBytesError
	name, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.Is(err, io.EOF):
		return "there is no body: a JSON object is wanted"
	case errors.As(err, &typ):
		wants := map[reflect.Kind]string{reflect.Float64: "a number", reflect.String: "a text", reflect.Slice: "a list",
			reflect.Struct: "an object", reflect.Map: "an object"}[typ.Type.Kind()]
		what, _, _ := strings.Cut(typ.Value, " ")
		return fmt.Sprintf("%s has to be %s, not a JSON %s", cmp.Or(typ.Field, "the body"), cmp.Or(wants, "something else"),
			what)
	case errors.As(err, &bad):
		return fmt.Sprintf("the body can't be read: it is no JSON from byte %d on", bad.Offset)
	case errors.As(err, &large):
		return fmt.Sprintf("the body can't be read: it has more than %d bytes", large.Limit)
	case unknown:
		var names []string
		for i, t := 0, reflect.TypeOf(to).Elem(); i < t.NumField(); i++ {
			member, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			names = append(names, member)
		}
		return name + ": there is no such member; there are " + strings.Join(names, ", ")
	}
	return "the body can't be read: it ends too early"
}
