package state

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/model"
)

// A transcript in testdata/*.txt is a session with the state machine. A line that is not indented is a command (or a
// comment, #); the indented lines under it are what it changed: "-" is a line of the dump that has gone, "+" a new one.
// `go test -rewrite` writes the indented lines anew.
//
//	node n1 cpus=4 mem=4000 gpu=a100:2       define; takes effect with configure
//	part p nodes=n1,n2 [exclusive] [state=down]
//	param minjobage=300 maxjobs=10 rts=1
//	configure [drop=n1] [droppart=p]
//	join n1 [boot=b2] [known=1.1,2.1] [problem=...]
//	submit name=a [array=0-9%2] [dep=afterok:1] [uid=7] [hold] [begin=+60] [limit=60] [kill] [requeue] [req=ID]
//	       [script=KEY[:missing]] [part=p,q] [prio=N] [exclusive] [account=a] [qos=q]
//	het N ...                               submit N components, each with the words of submit
//	together ID:n1 ID:n2...                 start components in one plan
//	start ID[_TASK] n1[,n2] [cpus=2] [gpu=0-1] [mem=100] [part=p]
//	started|launchfailed|ended ID[.ATTEMPT] [code=1] [signal=9] [oom] [unknown] [at=+30]
//	step ID.ATTEMPT [id=1] [code=1]
//	cancel|requeue|preempt TARGET... [hold] [uid=7]       TARGET is 5, 5_3, 5_[1-3] or 5+1
//	accrue account=a [user=u] [grp=2] [max=1]   only so many gain priority by age
//	accrue qos=q [grp=] [pu=] [pa=]; accrue off
//	hold|release TARGET... [admin]
//	set TARGET... [prio=] [begin=] [limit=] [throttle=] [dep=] [name=] [part=] [comment=]
//	lost|drain|down|resume NODES [reason=...] [keep]
//	drain|resume NODE gpu=0,1 [reason=...]
//	tells NODE INDEX:STAMP:TEXT|INDEX:used:TEXT...     all that the node has to say of its GPUs
//	reason ID TEXT-of-a-reason     what a plan says of a job
//	tick [+60]   wait +60   trim SEQ
//	outbox   usage   blobs   due   next                    print

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			s := newSession(t)
			for n, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
				if strings.HasPrefix(line, " ") {
					continue
				}
				fmt.Fprintln(&out, line)
				if line != "" && line[0] != '#' {
					s.at = fmt.Sprintf("%s:%d: %s", file, n+1, line)
					s.do(&out, line)
				}
			}
			golden.Compare(t, file, out.Bytes())
			s.replicas()
		})
	}
}

// epoch is when a transcript begins.
const epoch model.Time = 1_000_000_000

// session runs one transcript on a state and on two further replicas.
type session struct {
	t     *testing.T
	at    string
	now   model.Time
	st    *State
	twin  *State // the same log
	heir  *State // the same log, through a snapshot after every few commands
	count int
	cfg   model.Config
	dump  []string
}

func newSession(t *testing.T) *session {
	s := &session{t: t, now: epoch, st: New(), twin: New(), heir: New()}
	s.cfg = model.Config{Cluster: "test", Params: model.Params{MinJobAgeS: 300, MemConsumed: true, ReturnToService: 1}}
	return s
}

// apply puts a command through its encoding into every replica and checks them.
func (s *session) apply(b Body) Result {
	s.t.Helper()
	data, err := Encode(s.now, b)
	if err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	var res Result
	for i, st := range []*State{s.st, s.twin, s.heir} {
		c, err := Decode(data)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		r := st.Apply(c)
		if i == 0 {
			res = r
		} else if fmt.Sprint(r) != fmt.Sprint(res) {
			s.t.Fatalf("%s: replicas answer %v and %v", s.at, res, r)
		}
	}
	if err := s.st.Check(); err != nil {
		s.t.Errorf("%s: %v", s.at, err)
	}
	if s.count++; s.count%5 == 0 {
		s.heir = restored(s.t, s.heir)
	}
	return res
}

func restored(t testing.TB, st *State) *State {
	t.Helper()
	out := New()
	if err := out.Restore(bytes.NewReader(snapshot(t, st))); err != nil {
		t.Fatal(err)
	}
	return out
}

func snapshot(t testing.TB, st *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := st.Freeze()(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s *session) replicas() {
	s.t.Helper()
	want := snapshot(s.t, s.st)
	if !bytes.Equal(want, snapshot(s.t, s.twin)) {
		s.t.Error("two replicas fed the same log differ")
	}
	if !bytes.Equal(want, snapshot(s.t, s.heir)) {
		s.t.Error("a replica that went through snapshots differs from one that did not")
	}
	if err := s.heir.Check(); err != nil {
		s.t.Errorf("the replica that went through snapshots: %v", err)
	}
}
