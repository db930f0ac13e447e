package rest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/walltime"
)

// changes.go makes, changes and removes nodes, changes reservations and has the configuration read anew: as gcontrol
// does, with its keys.

// keys gathers KEY=VALUE settings.
type keys []model.KV

func (k *keys) add(key, value string) { *k = append(*k, model.KV{Key: key, Value: value}) }

// moment adds a moment given in seconds since 1970.
func (k *keys) moment(key string, n number) {
	if n.set {
		k.add(key, ask.MomentText(model.Time(n.int()*1000)))
	}
}

func (q *request) updateNodes(names []string) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	more, _ := b.list("name")
	if len(names) == 0 {
		for _, n := range more {
			list, err := hostlist.Expand(n)
			if err != nil {
				return &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode), Detail: err.Error()}
			}
			names = append(names, list...)
		}
	}
	if len(names) == 0 {
		return &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode), Detail: "name says which nodes"}
	}
	var set keys
	if states, _ := b.list("state"); len(states) > 0 {
		set.add("State", nodeState(states))
	}
	for _, x := range [][2]string{{"reason", "Reason"}, {"comment", "Comment"}, {"extra", "Extra"}, {"gres", "Gres"},
		{"topology_str", "Topology"}} {
		clears := x[0] == "comment" || x[0] == "extra" || x[0] == "reason" && len(set) == 0
		if v, ok := b.text(x[0]); ok && (v != "" || clears) { // a text that is there and empty clears
			set.add(x[1], v)
		}
	}
	for _, x := range [][2]string{{"features", "AvailableFeatures"}, {"features_act", "ActiveFeatures"},
		{"address", "NodeAddr"}, {"hostname", "NodeHostName"}} {
		if list, ok := b.list(x[0]); ok && (len(list) > 0 || strings.HasPrefix(x[0], "features")) {
			set.add(x[1], strings.Join(list, ","))
		}
	}
	if w := b.count("weight"); w.set {
		set.add("Weight", strconv.FormatInt(w.int(), 10))
	}
	if r := b.count("resume_after"); r.set {
		set.add("ResumeAfter", strconv.FormatInt(r.int(), 10))
	}
	b.ignore("reason_uid") // it is the caller
	if err := q.done(b); err != nil {
		return err
	}
	return q.ask(proto.KindUpdateNode, &proto.UpdateNodeRequest{Names: names, Set: set}, &proto.Empty{})
}

// nodeState gives gcontrol's word for a set of states: Slurm's clients send the flag, or base state and flag.
func nodeState(states []string) string {
	for _, s := range states {
		switch up := strings.ToUpper(s); up {
		case "DRAIN", "UNDRAIN", "RESUME", "DOWN", "FAIL", "POWER_DOWN", "POWER_UP", "REBOOT_REQUESTED":
			return up
		}
	}
	return strings.ToUpper(states[0])
}

func postNode(q *request) error  { return q.updateNodes([]string{q.name}) }
func postNodes(q *request) error { return q.updateNodes(nil) }

// reservation reads one of reservation_desc_msg and makes or changes it.
func (q *request) reservation(b *object) (name string, err error) {
	name = b.str("name")
	var set keys
	for _, x := range [][2]string{{"start_time", "StartTime"}, {"end_time", "EndTime"}} {
		set.moment(x[1], b.moment(x[0]))
	}
	if d := b.count("duration"); d.infinite {
		set.add("Duration", "UNLIMITED")
	} else if d.set {
		set.add("Duration", strconv.FormatInt(d.int(), 10))
	}
	for _, x := range [][2]string{{"node_list", "Nodes"}, {"users", "Users"}, {"accounts", "Accounts"}, {"groups",
		"Groups"},
		{"licenses", "Licenses"}} {
		if list, ok := b.list(x[0]); ok && len(list) > 0 {
			set.add(x[1], strings.Join(list, ","))
		}
	}
	for _, x := range [][2]string{{"partition", "PartitionName"}, {"features", "Features"}, {"comment", "Comment"},
		{"burst_buffer", "BurstBuffer"}} {
		if v := b.str(x[0]); v != "" {
			set.add(x[1], v)
		}
	}
	for _, x := range [][2]string{{"node_count", "NodeCnt"}, {"core_count", "CoreCnt"}} {
		if n := b.count(x[0]); n.set {
			set.add(x[1], strconv.FormatInt(n.int(), 10))
		}
	}
	if n := b.count("max_start_delay"); n.set {
		set.add("MaxStartDelay", walltime.Elapsed(n.int()))
	}
	if list := tresWords(b.objects("tres")); list != "" {
		set.add("TRES", list)
	}
	if p := b.object("purge_completed"); p != nil {
		if n := p.count("time"); n.set {
			set.add("PurgeComp", strconv.FormatInt(n.int(), 10))
		}
	}
	if b.err != nil || b.top().err != nil {
		return "", b.top().err
	}
	list, _ := b.list("flags")
	own, _ := b.at("gbatch").listOf("flags") // as versions before v0.0.44 have them
	if list = append(list, own...); len(list) > 0 {
		if words := resvFlags(list); words != "" {
			set.add("Flags+", words)
		}
	}
	rq := &proto.ReserveRequest{Action: proto.CreateReservation, Name: name, Set: set}
	if name != "" && q.facts.Reservation(name) != nil {
		rq.Action = proto.UpdateReservation
	}
	var reply proto.ReserveReply
	err = q.ask(proto.KindReserve, rq, &reply)
	if reply.Name != "" {
		name = reply.Name
	}
	return name, err
}

// resvFlags gives gcontrol's words for flags that are added to a reservation: NO_MAINT takes MAINT away.
func resvFlags(list []string) string {
	var out []string
	for _, f := range list {
		f = strings.ToUpper(strings.TrimSpace(f))
		switch off, is := strings.CutPrefix(f, "NO_"); {
		case f == "", f == "SPEC_NODES", f == "NO_USER_DELETE": // it describes, or is so in any case
		case is && f != "NO_HOLD_JOBS_AFTER_END" && f != "NO_HOLD_JOBS_AFTER":
			out = append(out, "-"+off)
		default:
			out = append(out, f)
		}
	}
	return strings.Join(out, ",")
}

// tresWords writes resources as options and keys take them: cpu=4,gres/gpu:a100=2.
func tresWords(list []*object) string {
	var out []string
	for _, t := range list {
		name := t.str("type")
		if n := t.str("name"); n != "" {
			name += "/" + n
		}
		t.ignore("id")
		count := t.number("count")
		text := strconv.FormatInt(count.int(), 10)
		switch share, _ := t.boolean("percent"); {
		case !count.set:
			text = "-1"
		case share: // in hundredths
			text = strconv.FormatFloat(count.v/100, 'f', -1, 64) + "%"
		}
		out = append(out, name+"="+text)
	}
	return strings.Join(out, ",")
}

// writeReservations writes what was made or changed.
func (q *request) writeReservations(names []string) {
	q.j.Open("reservations", '[')
	for _, n := range names {
		q.j.Open("", '{')
		q.j.Str("name", n)
		q.j.Close('}')
	}
	q.j.Close(']')
}

func postReservation(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	name, err := q.reservation(b)
	if err == nil {
		err = q.done(b)
	}
	if err == nil {
		q.writeReservations([]string{name})
	}
	return err
}

func postReservations(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	var names []string
	for _, one := range b.objects("reservations") {
		name, err := q.reservation(one)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := q.done(b); err != nil {
		return err
	}
	q.writeReservations(names)
	return nil
}

func deleteReservation(q *request) error {
	missing := q.facts.Reservation(q.name) == nil
	err := q.ask(proto.KindReserve, &proto.ReserveRequest{Action: proto.DeleteReservation, Name: q.name},
		&proto.ReserveReply{})
	var said *rpc.Error
	if missing && (!errors.As(err, &said) || said.Code != proto.CodeAccess) { // who may not hears nothing of it
		q.warn(notQueried("reservation", q.name))
	}
	return err
}

func reconfigure(q *request) error {
	var r proto.ReconfigureReply
	if err := q.ask(proto.KindReconfigure, &proto.ReconfigureRequest{}, &r); err != nil {
		return err
	}
	for _, p := range r.Problems {
		text := p.Text
		if p.File != "" {
			text = p.File + ":" + strconv.Itoa(int(p.Line)) + ": " + text
		}
		switch {
		case p.Severity == "error":
			q.faults = append(q.faults, asFault(&fault{Number: 2090, Detail: text}, q.op.id(q.ver)))
		case p.Severity == "warning" && p.Line == 0: // of what the change does
			q.warn(p.Text + "; " + p.Hint)
		}
	}
	for _, s := range r.Restart {
		q.warn(s)
	}
	return nil
}

// What follows is about lists of hosts, slurmrestd's two tools, and about making and removing nodes.

// badHosts refuses a list of hosts.
func badHosts(err error) error {
	return &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode), Detail: err.Error()}
}

// maxHosts bounds a list of hosts.
const maxHosts = 65536

// expand gives the hosts of a list such as n[1-4].
func expand(text string) ([]string, error) {
	n, err := hostlist.Count(text)
	if err == nil && n > maxHosts {
		err = fmt.Errorf("%d hosts, at most %d are possible", n, maxHosts)
	}
	if err != nil {
		return nil, badHosts(err)
	}
	list, err := hostlist.Expand(text)
	if err != nil {
		return nil, badHosts(err)
	}
	return list, nil
}

// postHostnames expands a list.
func postHostnames(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	text := b.str("hostlist")
	if err := q.done(b); err != nil {
		return err
	}
	list, err := expand(text)
	if err == nil {
		q.j.List("hostnames", list)
	}
	return err
}

// postHostlist compresses one.
func postHostlist(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	names, _ := b.list("hostnames")
	if err := q.done(b); err != nil {
		return err
	}
	if len(names) > maxHosts {
		return badHosts(fmt.Errorf("%d hosts, at most %d are possible", len(names), maxHosts))
	}
	q.j.Str("hostlist", hostlist.CompressInOrder(names))
	return nil
}

// confWords splits a line of NAME=VALUE words; quotes keep blanks together.
func confWords(line string) ([]model.KV, error) {
	var out []model.KV
	var word strings.Builder
	quoted, any := false, false
	end := func() error {
		if !any {
			return nil
		}
		key, value, has := strings.Cut(word.String(), "=")
		if !has || key == "" {
			return fmt.Errorf("'%s' is not NAME=VALUE", word.String())
		}
		out = append(out, model.KV{Key: key, Value: value})
		word.Reset()
		any = false
		return nil
	}
	for _, c := range line {
		switch {
		case c == '"':
			quoted, any = !quoted, true
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if err := end(); err != nil {
				return nil, err
			}
		default:
			word.WriteRune(c)
			any = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quotation mark is not closed")
	}
	return out, end()
}

// postNewNode makes nodes from a line as in the configuration: NodeName=n[5-6] CPUs=8 ...
func postNewNode(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	line := b.str("node_conf")
	if err := q.done(b); err != nil {
		return err
	}
	words, err := confWords(line)
	if err != nil {
		return &fault{Number: errBadNode, Text: "Invalid node configuration", Detail: "node_conf: " + err.Error()}
	}
	rq := &proto.UpdateNodeRequest{Action: proto.CreateNodes}
	for _, kv := range words {
		if strings.EqualFold(kv.Key, "NodeName") {
			if rq.Names, err = expand(kv.Value); err != nil {
				return err
			}
			continue
		}
		rq.Set = append(rq.Set, kv)
	}
	if len(rq.Names) == 0 {
		return &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode),
			Detail: "node_conf is a line such as NodeName=n5 CPUs=8 RealMemory=16000"}
	}
	return q.ask(proto.KindUpdateNode, rq, &proto.Empty{})
}

func deleteNode(q *request) error {
	return q.ask(proto.KindUpdateNode, &proto.UpdateNodeRequest{Action: proto.DeleteNodes, Names: []string{q.name}},
		&proto.Empty{})
}
