package acctmgr

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/format"
	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// fold makes edits as the cluster does when it takes them.
func (f *Facts) fold(edits []model.AcctEdit) {
	f.Gen++
	for _, e := range edits {
		switch e.Op {
		case model.PutAccount:
			f.Accounts[e.Account.Name] = e.Account
		case model.DropAccount:
			delete(f.Accounts, e.Account.Name)
		case model.PutUser:
			f.Users[e.User.Name] = e.User
		case model.DropUser:
			delete(f.Users, e.User.Name)
			delete(f.keys, e.User.Name)
		case model.PutWCKey:
			n := *e.WCKey
			n.ID = uint32(len(f.wckeys(nil, nil)) + 1)
			of := append(f.keys[n.User], &n)
			slices.SortFunc(of, func(a, b *model.WCKey) int { return strings.Compare(a.Name, b.Name) })
			f.keys[n.User] = of
		case model.DropWCKey:
			if u := f.Users[e.WCKey.User]; u != nil && u.DefaultWCKey == e.WCKey.Name {
				n := *u
				n.DefaultWCKey = ""
				f.Users[n.Name] = &n
			}
			f.keys[e.WCKey.User] = slices.DeleteFunc(f.keys[e.WCKey.User], func(w *model.WCKey) bool {
				return w.Name == e.WCKey.Name
			})
		case model.PutAssoc:
			n := *e.Assoc
			if n.ID == 0 {
				n.ID = uint32(len(f.assocs) + 1)
			}
			f.assocs[n.Key()] = &n
		case model.DropAssoc:
			delete(f.assocs, e.Assoc.Key())
		case model.PutQOS:
			n := *e.QOS
			if n.ID == 0 {
				n.ID = uint32(len(f.QOS) + 1)
			}
			f.QOS[n.Name] = &n
		case model.DropQOS:
			delete(f.QOS, e.QOS.Name)
		}
	}
}

// TestSessions reads commands from testdata/*.txt and compares what they print. A line that begins with $ is a command
// behind "gacctmgr"; -P, -s and -n stand before the verb.
func TestSessions(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			shipped := &proto.AccountsChunk{Gen: 1, Cluster: "lab", Addr: "ctl1:6817",
				TRES: []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "gres/gpu",
					"gres/gpu:h100"},
				Accounts: []*model.Account{{Name: "root", Description: "default root account", Organization: "root"}},
				Users:    []*model.User{{Name: "root", DefaultAccount: "root", Admin: model.AdminFull}},
				Assocs: []*model.Association{{ID: 1, Account: "root", Shares: 1, QOS: []string{"normal"}},
					{ID: 2, Account: "root", User: "root", Shares: 1}}}
			for _, q := range model.ShippedQOS() {
				shipped.QOS = append(shipped.QOS, &q)
			}
			f := Read([]*proto.AccountsChunk{shipped})
			var out bytes.Buffer
			for line := range strings.Lines(string(text)) {
				switch {
				case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
					out.WriteString(line)
				case strings.HasPrefix(line, "$ "):
					out.WriteString(line)
					run(&out, f, strings.Fields(line[2:]))
				}
			}
			golden.Compare(t, file, out.Bytes())
		})
	}
}

func run(out *bytes.Buffer, f *Facts, args []string) {
	var o Options
	header := true
	for len(args) > 0 && args[0][0] == '-' {
		switch args[0] {
		case "-P":
			o.Style = format.Style{Parsable: true, NoTrailing: true}
		case "-s":
			o.Assocs = true
		case "-n":
			header = false
		}
		args = args[1:]
	}
	if args[0] == "show" {
		p, rows, err := Show(f, args[1], args[2:], o)
		if err == nil {
			err = p.Write(out, rows, header)
		}
		if err != nil {
			fmt.Fprintf(out, "error:%v\n", err)
		}
		return
	}
	if args[0] == "dump" {
		for line := range strings.Lines(strings.TrimPrefix(Dump(f), flatHead)) {
			out.WriteString("  " + line)
		}
		return
	}
	if args[0] == "load" {
		text, err := os.ReadFile(filepath.Join("testdata", args[1]))
		var plan *Plan
		if err == nil {
			plan, err = Load(f, string(text), "", len(args) > 2)
		}
		tell(out, f, plan, err)
		return
	}
	plan, err := map[string]func(*Facts, string, []string) (*Plan, error){"add": Add, "modify": Modify,
		"delete": Remove}[args[0]](f, args[1], args[2:])
	tell(out, f, plan, err)
}

// tell prints a plan and carries it out.
func tell(out *bytes.Buffer, f *Facts, plan *Plan, err error) {
	if err != nil {
		fmt.Fprintf(out, "error:%v\n", err)
		return
	}
	for _, l := range append(plan.Notes, plan.Text...) {
		fmt.Fprintln(out, l)
	}
	if len(plan.Edits) == 0 && len(plan.Text) == 0 {
		fmt.Fprintln(out, plan.Nothing)
	}
	f.fold(plan.Edits)
}
