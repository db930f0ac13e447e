package pmi

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"gbatch/internal/stepio"
)

// The streams of the connection between a node's server and the step's hub. A frame's rank is the task's that it is
// about.
const (
	streamPairs  uint8 = 10 // both ways: what tasks have put
	streamArrive uint8 = 11 // to the hub: these tasks wait in a fence; to the node: all have
	streamGone   uint8 = 12 // to the hub: the task's end of its connection is closed
	streamAbort  uint8 = 13 // to the hub: the task ends the step; its text
	streamNote   uint8 = 14 // to the hub: a sentence for the user
)

// Conn is the connection between a node's server and the hub.
type Conn interface {
	Read() (stepio.Frame, error)
	Write(stream uint8, rank int32, data []byte) error
}

// Job is what tasks are told of their step.
type Job struct {
	ID      string // names the step and its key-value space
	Size    int    // tasks of the step
	Mapping string // see Mapping; "": unknown
}

// noSpawn answers a program that wants to start others.
const noSpawn = "MPI_Comm_spawn is not supported under grun: start all tasks at once, or use the MPI's own mpiexec " +
	"in the job"

// Local serves the tasks of one node.
type Local struct {
	job Job
	hub Conn

	mu      sync.Mutex
	cond    sync.Cond
	space   space
	node    space   // attributes of the node
	fresh   []byte  // pairs that the hub doesn't have
	ranks   int     // tasks that are served
	gone    int     // of them, those whose connection has ended
	waiting []int32 // in the fence, and not told to the hub
	fences  uint64  // how many have ended
	lost    bool    // the hub is gone
	owed    []byte  // pairs of the fence that is about to end
}

// NewLocal makes the server of the tasks of one node, ranks in number.
func NewLocal(job Job, ranks int, hub Conn) *Local {
	l := &Local{job: job, hub: hub, ranks: ranks}
	l.cond.L = &l.mu
	if job.Mapping != "" {
		_ = l.space.put(mappingKey, job.Mapping) // Mapping has looked at its length
	}
	return l
}

const mappingKey = "PMI_process_mapping"

// Listen takes the hub's frames until it is gone. Then no fence ends any more, and tasks that wait are disconnected.
func (l *Local) Listen() error {
	defer func() {
		l.mu.Lock()
		l.lost = true
		l.cond.Broadcast()
		l.mu.Unlock()
	}()
	for {
		f, err := l.hub.Read()
		if err != nil {
			return err
		}
		l.mu.Lock()
		switch f.Stream {
		case streamPairs:
			if len(l.owed)+len(f.Data) > MaxSpace {
				err = errFull
				break
			}
			l.owed = append(l.owed, f.Data...)
		case streamArrive:
			err = l.space.putAll(l.owed)
			l.owed = nil
			l.fences++
			l.cond.Broadcast()
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// Serve answers a task until its connection ends.
func (l *Local) Serve(rank int32, rw io.ReadWriter) {
	t := &task{l: l, rank: rank, r: bufio.NewReaderSize(rw, maxLine), w: rw}
	_ = t.converse() // whatever ends it, the task is told no more
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone++
	l.cond.Broadcast()
	l.tellHub()
	_ = l.hub.Write(streamGone, rank, nil) // a lost hub is seen by Listen
}

// tellHub sends what the hub doesn't know, as soon as no more can come. The caller holds the lock.
func (l *Local) tellHub() {
	if len(l.waiting) == 0 || len(l.waiting) < l.ranks-l.gone && l.gone == 0 {
		return
	}
	list := make([]byte, 0, 4*len(l.waiting))
	for _, r := range l.waiting {
		list = binary.LittleEndian.AppendUint32(list, uint32(r))
	}
	// a lost hub is seen by Listen
	if len(l.fresh) > 0 {
		_ = l.hub.Write(streamPairs, stepio.AllRanks, l.fresh)
	}
	_ = l.hub.Write(streamArrive, stepio.AllRanks, list)
	l.waiting, l.fresh = nil, nil
}

var errLost = errors.New("the step's command is gone")

// fence waits until all tasks of the step are in it.
func (l *Local) fence(rank int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.fences
	l.waiting = append(l.waiting, rank)
	l.tellHub()
	for l.fences == at && !l.lost {
		l.cond.Wait()
	}
	if l.fences == at {
		return errLost
	}
	return nil
}

func (l *Local) put(key, value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.space.put(key, value); err != nil {
		return err
	}
	if len(l.fresh)+len(key)+len(value)+pairHead > MaxSpace {
		return errFull
	}
	l.fresh = appendPair(l.fresh, key, value)
	return nil
}

func (l *Local) get(key string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.space.values[key]
	return v, ok
}

func (l *Local) putNode(key, value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.cond.Broadcast()
	return l.node.put(key, value)
}

// getNode gives an attribute of the node, and waits for it on request.
func (l *Local) getNode(key string, wait bool) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		v, ok := l.node.values[key]
		if ok || !wait || l.lost || l.gone >= l.ranks-1 { // nobody is left to put it
			return v, ok
		}
		l.cond.Wait()
	}
}

func (l *Local) note(rank int32, text string) {
	_ = l.hub.Write(streamNote, rank, []byte(text)) // a lost hub is seen by Listen
}

func (l *Local) abort(rank int32, text string) {
	_ = l.hub.Write(streamAbort, rank, []byte(plainText(text))) // as above
}

// task is the conversation with one task.
type task struct {
	l    *Local
	rank int32
	r    *bufio.Reader
	w    io.Writer
}

// converse reads the first message, which says which protocol follows.
func (t *task) converse() error {
	m, err := readLine(t.r)
	if err != nil {
		return err
	}
	if m["cmd"] != "init" {
		return errors.New("a first message that is none")
	}
	if m["pmi_version"] == "2" {
		if err := t.say("cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"); err != nil {
			return err
		}
		for err == nil {
			if m, err = readMessage(t.r); err == nil {
				err = t.second(m)
			}
		}
		return err
	}
	if err := t.say("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"); err != nil {
		return err
	}
	for err == nil {
		if m, err = readLine(t.r); err == nil {
			err = t.first(m)
		}
	}
	return err
}

func (t *task) say(text string) error {
	_, err := io.WriteString(t.w, text)
	return err
}

// first answers a message of PMI-1.
func (t *task) first(m message) error {
	l := t.l
	if m["mcmd"] == "spawn" {
		if err := skipSpawn(t.r, m); err != nil {
			return err
		}
		l.note(t.rank, noSpawn)
		return t.say("cmd=spawn_result rc=-1 errmsg=spawn_is_not_supported\n")
	}
	switch m["cmd"] {
	case "get_maxes":
		return t.say("cmd=maxes kvsname_max=" + strconv.Itoa(MaxName) + " keylen_max=" + strconv.Itoa(MaxKey) +
			" vallen_max=" + strconv.Itoa(MaxValue) + "\n")
	case "get_appnum":
		return t.say("cmd=appnum appnum=0\n")
	case "get_my_kvsname":
		return t.say("cmd=my_kvsname kvsname=" + l.job.ID + "\n")
	case "get_universe_size":
		return t.say("cmd=universe_size size=" + strconv.Itoa(l.job.Size) + "\n")
	case "create_kvs":
		return t.say("cmd=newkvs kvsname=" + l.job.ID + "\n")
	case "destroy_kvs":
		return t.say("cmd=kvs_destroyed rc=0\n")
	case "put":
		if err := l.put(m["key"], m["value"]); err != nil {
			return t.say("cmd=put_result rc=-1 msg=" + oneWord(err) + "\n")
		}
		return t.say("cmd=put_result rc=0 msg=success\n")
	case "get":
		if v, ok := l.get(m["key"]); ok {
			return t.say("cmd=get_result rc=0 msg=success value=" + v + "\n")
		}
		return t.say("cmd=get_result rc=-1 msg=key_not_found value=unknown\n")
	case "getbyidx":
		return t.say("cmd=getbyidx_results rc=-1 reason=no_more_keyvals\n")
	case "barrier_in":
		if err := l.fence(t.rank); err != nil {
			return err
		}
		return t.say("cmd=barrier_out rc=0\n")
	case "publish_name":
		return t.say("cmd=publish_result rc=-1 msg=names_are_not_published\n")
	case "unpublish_name":
		return t.say("cmd=unpublish_result rc=-1 msg=names_are_not_published\n")
	case "lookup_name":
		return t.say("cmd=lookup_result rc=-1 msg=names_are_not_published\n")
	case "finalize":
		return t.say("cmd=finalize_ack rc=0\n")
	case "abort":
		text := m["error_msg"]
		if code := m["exitcode"]; text == "" && code != "" {
			text = "exit code " + code
		}
		l.abort(t.rank, text)
		return nil
	}
	return errors.New("an unknown message")
}

func oneWord(err error) string { return strings.ReplaceAll(err.Error(), " ", "_") }

// second answers a message of PMI-2.
func (t *task) second(m message) error {
	l, cmd := t.l, m["cmd"]
	answer := func(words ...string) error {
		all := []string{"cmd", cmd + "-response"}
		if id, ok := m["thrid"]; ok {
			all = append(all, "thrid", id)
		}
		_, err := t.w.Write(pairs(append(all, words...)...))
		return err
	}
	result := func(err error) error {
		if err != nil {
			return answer("rc", "1", "errmsg", err.Error())
		}
		return answer("rc", "0")
	}
	found := func(value string, ok bool) error {
		if !ok {
			return answer("rc", "0", "found", "FALSE")
		}
		return answer("rc", "0", "found", "TRUE", "value", value)
	}
	switch cmd {
	case "fullinit":
		return answer("rc", "0", "pmi-version", "2", "pmi-subversion", "0", "rank", strconv.Itoa(int(t.rank)), "size",
			strconv.Itoa(l.job.Size), "appnum", "0", "debugged", "FALSE", "pmiverbose", "FALSE")
	case "finalize":
		return answer("rc", "0")
	case "abort":
		l.abort(t.rank, m["msg"])
		return nil
	case "job-getid":
		return answer("rc", "0", "jobid", l.job.ID)
	case "job-connect", "job-disconnect":
		return answer("rc", "1", "errmsg", "there are no other jobs to connect to")
	case "kvs-put":
		return result(l.put(m["key"], m["value"]))
	case "kvs-get":
		return found(l.get(m["key"]))
	case "kvs-fence":
		if err := l.fence(t.rank); err != nil {
			return err
		}
		return answer("rc", "0")
	case "info-putnodeattr":
		return result(l.putNode(m["key"], m["value"]))
	case "info-getnodeattr":
		return found(l.getNode(m["key"], strings.EqualFold(m["wait"], "TRUE")))
	case "info-getjobattr":
		switch key := m["key"]; key {
		case "universeSize":
			return found(strconv.Itoa(l.job.Size), true)
		case mappingKey:
			return found(l.job.Mapping, l.job.Mapping != "")
		}
		return found("", false)
	case "name-publish", "name-unpublish", "name-lookup":
		return answer("rc", "1", "errmsg", "names are not published under grun")
	case "spawn":
		l.note(t.rank, noSpawn)
		return answer("rc", "1", "errmsg", noSpawn)
	}
	return answer("rc", "1", "errmsg", "unknown command "+plainText(cmd))
}
