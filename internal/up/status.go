package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Status is a cluster as `gbatch status` shows it.
type Status struct {
	Cluster string   `json:"cluster"`
	Dir     string   `json:"dir"`
	Conf    string   `json:"conf"`
	Ready   bool     `json:"ready"` // takes jobs
	Daemons []Daemon `json:"daemons"`
}

// Daemon is one of its daemons.
type Daemon struct {
	Role      string   `json:"role"` // gctld, gdbd or gnoded
	Name      string   `json:"name"`
	PID       int      `json:"pid"` // 0: it doesn't run
	Running   bool     `json:"running"`
	Addresses []string `json:"addresses"`      // host:port of its port, path of its socket
	HTTP      string   `json:"http,omitempty"` // of a controller: the address of its REST interface
	Directory string   `json:"directory"`
	Log       string   `json:"log"`
	Leader    bool     `json:"leader"`
	Shim      int      `json:"shim_pid,omitempty"` // of a node: its launcher gshim
	Off       bool     `json:"powered_down,omitempty"`
}

// Look reports on the cluster in dir.
func Look(ctx context.Context, dir string) (*Status, error) {
	l, b, want, err := open(dir)
	if err != nil {
		return nil, err
	}
	st := &Status{Cluster: b.Cluster, Dir: string(l), Conf: l.conf()}
	leader := ""
	running := 0
	for i := range want {
		if want[i].runs() {
			running++
		}
	}
	if running > 0 {
		s := look(ctx, want)
		leader, st.Ready = s.ping.Leader, s.ping.Ready
	}
	shims, err := launchers()
	if err != nil {
		return nil, err
	}
	for i := range want {
		m := &want[i]
		d := Daemon{Role: m.Role, Name: m.Name, Running: m.runs(), Addresses: m.Addresses, HTTP: m.HTTP,
			Directory: m.Directory, Log: m.Log, Off: m.Off()}
		if d.Running {
			d.PID = m.PID
		}
		d.Leader = m.Role == RoleController && d.Running && m.Name == leader
		if m.Role == RoleNode {
			d.Shim = eldest(shims[shimDir(m.Directory)]).PID
		}
		st.Daemons = append(st.Daemons, d)
	}
	return st, nil
}

// AllRun reports whether every daemon runs, but for those of nodes that are powered down.
func (s *Status) AllRun() bool {
	for i := range s.Daemons {
		if d := &s.Daemons[i]; !d.Running && !d.Off {
			return false
		}
	}
	return len(s.Daemons) > 0
}

// Print writes the table of `gbatch status`.
func (s *Status) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var errs []error
	p := func(format string, a ...any) {
		_, err := fmt.Fprintf(w, format+"\n", a...)
		errs = append(errs, err)
	}
	p("cluster %s in %s", s.Cluster, s.Dir)
	p("DAEMON\tNAME\tPID\tSTATE\tADDRESS\tDIRECTORY")
	for i := range s.Daemons {
		d := &s.Daemons[i]
		pid, how := fmt.Sprint(d.PID), "running"
		switch {
		case d.Off:
			pid, how = "-", "powered down"
		case !d.Running:
			pid, how = "-", "not running"
		case d.Leader:
			how = "leads"
		}
		p("%s\t%s\t%s\t%s\t%s\t%s", d.Role, d.Name, pid, how, strings.Join(d.Addresses, " "), d.Directory)
	}
	for i := range s.Daemons {
		if d := &s.Daemons[i]; d.HTTP != "" && d.Running {
			p("HTTP of %s: %s", d.Name, d.HTTP)
		}
	}
	errs = append(errs, w.Flush())
	return errors.Join(errs...)
}
