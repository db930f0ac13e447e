package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// kinds gives every kind that proto has a row for.
func kinds() []uint16 {
	var out []uint16
	for k := range uint16(1000) {
		if r := proto.RequestOf(k); r.Name != "REQUEST_OTHER" {
			out = append(out, k)
		}
	}
	return out
}

func TestEveryKindHasARow(t *testing.T) {
	all := kinds()
	for _, k := range all {
		if _, ok := table[k]; !ok {
			t.Errorf("%s (kind %d) has no row: write down who may ask it", proto.RequestOf(k).Name, k)
		}
	}
	if len(all) != len(table) {
		t.Errorf("%d kinds and %d rows", len(all), len(table))
	}
}

// TestRowsAreSound: what must hold of each row, whatever it says.
func TestRowsAreSound(t *testing.T) {
	for _, k := range kinds() {
		row, name := Of(k), proto.RequestOf(k).Name
		user := proto.RequestOf(k).At != proto.AtDaemon
		for c := User; c < Administrator; c++ {
			if row[c] > row[c+1] {
				t.Errorf("%s: %s may more (%s) than %s (%s)", name, c, row[c], c+1, row[c+1])
			}
		}
		if (row[User] == Refused) != (row[Coordinator] == Refused) {
			t.Errorf("%s: whether it is refused must not depend on who coordinates something", name)
		}
		if row[Stranger] != Refused && k != proto.KindJoin && k != proto.KindTime {
			t.Errorf("%s: strangers get nothing", name)
		}
		if user != (row[Administrator] != Refused) {
			t.Errorf("%s: users=%v, and an administrator gets %s", name, user, row[Administrator])
		}
		if row[Node] == Passes && row[User] == Refused {
			t.Errorf("%s: a node passes on what ordinary users may not ask", name)
		}
		if w := row[Gdbd]; w != Refused && w != Itself {
			t.Errorf("%s: gdbd passes nothing on", name)
		}
	}
	if May(Administrator, 999) != Refused || May(Controller, 99) != Refused || May(numCallers, 1) != Refused {
		t.Error("an unknown kind or caller is not refused")
	}
}

// TestWhoIsBelieved walks all daemons, kinds and users.
func TestWhoIsBelieved(t *testing.T) {
	const system, alice, bob = 900, 1001, 1002
	list := map[uint16]bool{proto.KindSubmit: true, proto.KindSubmitEach: true, proto.KindCancel: true,
		proto.KindSignal: true, proto.KindUpdateJob: true, proto.KindScript: true, proto.KindPresent: true}
	for _, k := range kinds() {
		row := proto.RequestOf(k)
		for by := range numCallers {
			for _, uid := range []uint32{0, system, alice, bob, model.NoID} {
				claim := &Claim{By: by, Kind: k, Effect: row.Effect, UID: uid, System: system,
					HasJob: func(uid uint32) bool { return uid == alice }}
				why := Vouch(claim)
				about := fmt.Sprintf("%s for uid %d by a %s", row.Name, uid, by)
				hidden := by == Node && uid != alice && row.Effect == proto.Reads && (k != proto.KindPeers || uid != 0)
				if as := SeesAs(claim); why == Believed && (as != uid) != hidden || hidden && as != model.NoID {
					t.Errorf("%s: answered as %d's", about, as)
				}
				switch {
				case why == Believed && uid == model.NoID:
					t.Errorf("%s: nobody is that", about)
				case why == Believed && by != LoginHost && by != Node && by != Controller:
					t.Errorf("%s: it may pass on nothing", about)
				case why == Believed && row.At == proto.AtDaemon:
					t.Errorf("%s: no user's request", about)
				case row.Effect == proto.Reads || by == Controller || why != Believed:
				case uid == 0 || uid == system:
					t.Errorf("%s: a host is believed about a system user", about)
				case by == Node && (uid != alice || !list[k]):
					t.Errorf("%s: a node is believed", about)
				}
			}
		}
	}
	for r := model.RightsUser; r <= model.RightsAdministrator; r++ {
		if MostRights(Node, r) != model.RightsUser || MostRights(LoginHost, r) != r || MostRights(Gdbd, r) != 0 {
			t.Errorf("LoginRights=%s", r)
		}
		if c := OfRights(r); c.String() != r.String() {
			t.Errorf("%s is a %s", r, c)
		}
	}
}

// TestPageHasTheTable: gbatch-security(7) has the table as it is here.
func TestPageHasTheTable(t *testing.T) {
	path := filepath.Join("..", "..", "man", "gbatch-security.7")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = ".\\\" The table of internal/trust.\n.EX\n", ".EE\n"
	head, rest, ok := strings.Cut(string(page), begin)
	was, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	now := text()
	if was == now {
		return
	}
	if os.Getenv("GBATCH_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(head+begin+now+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the table of %s is another one than the code's (GBATCH_REWRITE=1 writes it):\n%s", path, now)
}

// text prints the table for the manual page: kinds with the same row stand together.
func text() string {
	type group struct {
		row   Row
		kinds []string
	}
	var groups []*group
next:
	for _, k := range kinds() {
		name := strings.NewReplacer("REQUEST_", "", "MESSAGE_", "", "RESPONSE_NODE_ASK",
			"NODE_ANSWER").Replace(proto.RequestOf(k).Name)
		for _, g := range groups {
			if g.row == Of(k) {
				g.kinds = append(g.kinds, name)
				continue next
			}
		}
		groups = append(groups, &group{Of(k), []string{name}})
	}
	var b strings.Builder
	for _, g := range groups {
		line := ""
		for _, name := range g.kinds {
			if len(line)+len(name) > 70 {
				fmt.Fprintln(&b, strings.TrimRight(line, " "))
				line = ""
			}
			line += name + " "
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
		line = "   "
		for c, w := range g.row {
			if w == Refused {
				continue
			}
			if word := fmt.Sprintf(" %s: %s;", Caller(c), w); len(line)+len(word) > 76 {
				fmt.Fprintln(&b, line)
				line = "   " + word
			} else {
				line += word
			}
		}
		fmt.Fprintln(&b, strings.TrimRight(line, ";"))
	}
	return b.String()
}
