package rest

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// routes.go is the table of operations: what slurmrestd calls them, from which version on they are there, and the
// method that carries them out. The specification that is served comes from the same table.

// versions are the ones that are served, newest first.
var versions = []string{"v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40"}

// op is one operation.
type op struct {
	Method string
	Asks   uint16   // the kind of request that it makes, see package trust; 0: every user may
	Path   string   // /slurm/V/job/{job_id}; a slash at its end is Slurm's own, and is not asked for
	Name   string   // slurm_V_get_job
	Since  string   // the first version that has it; "": all have
	Answer string   // the schema of its answer, without the version
	Body   string   // of what is sent; "": nothing is
	Params []string // that it reads, and with granted before it, those that it takes
	About  string

	Run func(q *request) error
	// Blank writes the members that an answer must have also where nothing is found.
	Blank func(q *request, j *slurmjson.Writer)
}

// id is the operation's name in a version.
func (o *op) id(ver string) string {
	return strings.Replace(o.Name, "_V_", "_"+strings.ReplaceAll(ver, ".", "")+"_", 1)
}

// in is the path in a version.
func (o *op) in(ver string) string { return strings.Replace(o.Path, "/V/", "/"+ver+"/", 1) }

func (o *op) is(ver string) bool { return ver >= o.Since }

// blank gives the members of an answer without content: lists, texts with a # before, and last_update.
func blank(members ...string) func(*request, *slurmjson.Writer) {
	return func(_ *request, j *slurmjson.Writer) {
		for _, m := range members {
			switch {
			case m == "last_update", m == "last_backfill":
				j.Unset(m)
			case strings.HasPrefix(m, "#"):
				j.Str(m[1:], "")
			case strings.HasPrefix(m, "@"):
				j.Open(m[1:], '{')
				j.Close('}')
			default:
				j.List(m, nil)
			}
		}
	}
}

// routes finds operations.
type routes struct {
	of map[string][]*op // by path without versions, and * for a name
}

func newRoutes() *routes {
	r := &routes{of: map[string][]*op{}}
	all := operations()
	for i := range all {
		o := &all[i]
		r.of[pattern(o.Path)] = append(r.of[pattern(o.Path)], o)
	}
	return r
}

// pattern makes the key of a path: slurm/job/*.
func pattern(path string) string {
	words := strings.Split(strings.Trim(path, "/"), "/")
	for i, w := range words {
		if strings.HasPrefix(w, "{") {
			words[i] = "*"
		}
	}
	return strings.Join(slices.Delete(words, 1, 2), "/")
}

// find gives the operations of a path, its version, and the name in it.
func (r *routes) find(path string) (ops []*op, ver, name string) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	if len(words) < 3 || len(words) > 4 || !slices.Contains(versions, words[1]) {
		return nil, "", ""
	}
	ver = words[1]
	key := strings.Join(slices.Delete(slices.Clone(words), 1, 2), "/")
	found := r.of[key]
	if found == nil && len(words) == 4 {
		found, name = r.of[words[0]+"/"+words[2]+"/*"], words[3]
	}
	for _, o := range found {
		if o.is(ver) {
			ops = append(ops, o)
		}
	}
	return ops, ver, name
}

// route answers a request.
func (s *Server) route(ctx context.Context, w *answer, r *http.Request, path string) {
	if s.open3(w, r, path) {
		return
	}
	ctx = context.WithValue(ctx, serverKey{}, s)
	if s.room(ctx, w, r, path) {
		return
	}
	if s.o.Pages != nil && s.o.Pages.Owns(path) {
		s.o.Pages.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	ops, ver, name := s.routes.find(path)
	if len(ops) == 0 && s.o.Pages != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.o.Pages.ServeHTTP(w, r.WithContext(ctx)) // a person, whom a page tells that there is none
		return
	}
	if len(ops) == 0 {
		plainText(w, http.StatusNotFound, "Unable to find requested URL endpoint. /openapi/v3 has what is served.")
		return
	}
	if plainName, err := url.PathUnescape(name); err == nil {
		name = plainName
	}
	var found *op
	var methods []string
	for _, o := range ops {
		if o.Method == r.Method {
			found = o
		}
		methods = append(methods, o.Method)
	}
	if found == nil {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		plainText(w, http.StatusMethodNotAllowed, "Unable to find requested URL method. Possible: "+strings.Join(methods,
			", "))
		return
	}
	q := &request{ctx: ctx, s: s, op: found, r: r, w: w, ver: ver, name: name,
		facts: s.o.Cluster.Facts(), form: formOf(r)}
	if found.Method == get {
		q.out.start = q.begin
	}
	q.j = slurmjson.New(&q.out, ver)
	q.j.Open("", '{')
	who, err := s.caller(ctx, r)
	switch {
	case errors.Is(err, errNoToken):
		plainText(w, http.StatusUnauthorized, err.Error())
		return
	case err != nil:
		q.who = nobody
		if errors.Is(err, errToken) {
			err = &fault{Number: errAuthentication, Detail: strings.ReplaceAll(err.Error(), "\n", ": "),
				Status: http.StatusNetworkAuthenticationRequired}
		}
		q.send(err)
		return
	}
	q.who, q.held = who, heldOfUser(who.UID)
	defer q.held.free()
	leave, err := s.o.Cluster.Admit(ctx, who.UID, Claim(r, maxBody))
	if err != nil {
		q.send(err)
		return
	}
	defer leave()
	if found.Asks != 0 {
		if err := s.o.Cluster.MayAsk(who, found.Asks); err != nil { // its body is not even read
			q.send(err)
			return
		}
	}
	if err := q.parameters(r.URL.Query()); err != nil {
		q.send(err)
		return
	}
	q.send(found.Run(q))
}

// Claim is how many bytes a request counts against its user's share before it is read: what it says, and all that it
// may have if it says nothing. A parser of YAML needs many times the text.
func Claim(r *http.Request, most int64) int {
	n := r.ContentLength
	if n < 0 || n > most {
		n = most
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && isYAML(kind) {
		n = min(n, maxYAML) * yamlFactor
	}
	return int(n)
}

// RoomClaim is Claim for a request whose answer is made whole before it leaves.
func RoomClaim(r *http.Request, most int64) int { return max(Claim(r, most), roomBytes) }

// An operation declares each parameter of its query once, and a handler can read no others. What a query has beyond
// them is told to who asks, and refused where something would change: a filter that is spelled wrong must not select
// everything.

// granted marks a parameter whose wish is granted in any case, such as ~with_coords, or that Slurm ignores too.
const granted = "~"

// takes reports whether an operation has a parameter, and whether it is read.
func (o *op) takes(name string) (has, read bool) {
	read = slices.Contains(o.Params, name)
	return read || slices.Contains(o.Params, granted+name), read
}

// names gives the names of an operation's parameters.
func (o *op) names() (out []string) {
	for _, p := range o.Params {
		out = append(out, strings.TrimPrefix(p, granted))
	}
	return out
}

// parameters takes the parameters that the operation has.
func (q *request) parameters(set url.Values) error {
	q.query = url.Values{}
	var odd []string
	for name, values := range set {
		switch has, read := q.op.takes(name); {
		case read:
			q.query[name] = values
		case has:
		case q.op.Method != get || slices.ContainsFunc(values, asks):
			odd = append(odd, name)
		}
	}
	if len(odd) == 0 {
		return nil
	}
	slices.Sort(odd)
	there := "it has no parameters"
	if names := q.op.names(); len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	if q.op.Method != get {
		return &fault{Number: errQuery, Detail: strings.Join(odd[:min(len(odd), maxOdd)], ", ") +
			" is no parameter of this operation; " + there}
	}
	for _, name := range odd[:min(len(odd), maxOdd)] {
		q.warn(name + "= is not read here and was ignored; " + there)
	}
	return nil
}

// maxOdd is how many parameters are named that nothing reads.
const maxOdd = 20

// asks reports whether the value of a parameter that is true or false, or there or not, asks for something.
func asks(v string) bool {
	switch strings.ToLower(v) {
	case "", "0", "false", "no", "off":
		return false
	}
	return true
}

// get gives a parameter of the query.
func (q *request) get(name string) string { return q.query.Get(name) }

// flag reads a parameter that is true or false.
func (q *request) flag(name string) bool { return asks(q.get(name)) }

// Words reads values that have several words each, with commas between; those in brackets, as of n[1,3], don't count.
func Words(values []string) (out []string) {
	for _, v := range values {
		out = append(out, env.SplitIDs(v)...)
	}
	return out
}

// words reads parameters with several values, with commas between or given several times.
func (q *request) words(names ...string) (out []string) {
	for _, name := range names {
		out = append(out, Words(q.query[name])...)
	}
	return out
}

// hosts gives the names of nodes that words such as n[1-3] stand for.
func hosts(list []string) (out []string, err error) {
	for _, w := range list {
		names, err := hostlist.Expand(w)
		if err != nil {
			return nil, &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode), Detail: err.Error()}
		}
		out = append(out, names...)
	}
	return out, nil
}

// noneEmpty refuses a query that selects what is removed by a parameter without a value.
func (q *request) noneEmpty() error {
	for _, name := range q.op.names() {
		if values, given := q.query[name]; given && len(Words(values)) == 0 {
			return &fault{Number: errQuery, Status: http.StatusUnprocessableEntity,
				Detail: name + "= names nothing; leave it out, or say which"}
		}
	}
	return nil
}
