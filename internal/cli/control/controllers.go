package control

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"gbatch/internal/clustertext"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// controllers.go: gcontrol controllers, the list and its changes.

const editForms = "controllers add NAME[=HOST:PORT], remove NAME or replace OLD NEW[=HOST:PORT]"

// controllers lists the controllers, or adds, removes or replaces one.
func (c *control) controllers(words []string) error {
	if len(words) == 0 {
		return c.listControllers()
	}
	rq, err := editOf(words)
	if err != nil {
		return err
	}
	if c.json != "" {
		return errNoJSON
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.EditControllersReply
	if err := cl.Call(proto.KindEditControllers, rq, &r); err != nil {
		return plain{err}
	}
	for _, s := range r.Said {
		if !c.quiet {
			fmt.Fprintln(c.Stdout, s)
		}
	}
	return nil
}

// editOf reads the words of a change.
func editOf(words []string) (*proto.EditControllersRequest, error) {
	verb, names := strings.ToLower(words[0]), words[1:]
	rq := &proto.EditControllersRequest{RequestID: rand.Text()}
	var err error
	switch {
	case verb == "add" && len(names) == 1:
		rq.Add, rq.Addr, err = nameAndAddr(names[0])
	case verb == "remove" && len(names) == 1:
		rq.Remove = names[0]
	case verb == "replace" && len(names) == 2:
		rq.Remove = names[0]
		rq.Add, rq.Addr, err = nameAndAddr(names[1])
	default:
		err = errors.New("write " + editForms)
	}
	return rq, err
}

// nameAndAddr reads NAME, NAME=HOST:PORT, and NAME(HOST:PORT) as in SlurmctldHost.
func nameAndAddr(s string) (name, addr string, err error) {
	name, addr, given := strings.Cut(s, "=")
	if !given {
		var closed bool
		if name, addr, given = strings.Cut(s, "("); given {
			if addr, closed = strings.CutSuffix(addr, ")"); !closed {
				addr = ""
			}
		}
	}
	if name == "" || given && addr == "" {
		return "", "", fmt.Errorf("%s: write NAME, or NAME=HOST:PORT", s)
	}
	return name, addr, nil
}

func (c *control) listControllers() error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.ControllersReply
	if err := cl.Call(proto.KindControllers, &proto.Empty{}, &r); err != nil {
		return plain{err}
	}
	if c.json != "" {
		j := c.JSONFrame("controllers", c.json)
		fields := clustertext.ControllersJSON()
		for i := range r.List {
			slurmjson.Write(j, "", fields, &r.List[i])
		}
		return c.JSONFinish(j, r.Cluster, r.Now)
	}
	rows := [][]string{{"NAME", "ADDRESS", "ROLE", "TERM", "BEHIND", "HEARD", "VERSION", "HEALTH"}}
	for _, s := range r.List {
		behind, heard, version := "-", "never", "-"
		if s.Behind >= 0 {
			behind = fmt.Sprint(s.Behind)
		}
		if s.HeardMS >= 0 {
			heard = fmt.Sprintf("%.1f s ago", (time.Duration(s.HeardMS) * time.Millisecond).Seconds())
		}
		if s.HeardMS == 0 {
			heard = "itself"
		}
		if s.Version != "" {
			version = s.Version
		}
		rows = append(rows, []string{s.Name, s.Addr, s.Role, fmt.Sprint(s.Term), behind, heard, version, s.Health})
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", width[i], cell)
		}
		fmt.Fprintln(c.Stdout, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(c.Stdout, "as %s sees it\n", r.Name)
	for _, n := range r.Notes {
		fmt.Fprintln(c.Stdout, n)
	}
	return nil
}
