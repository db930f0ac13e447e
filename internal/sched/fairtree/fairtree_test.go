package fairtree

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// tree builds nodes from lines "name parent shares usage"; a name that begins with @ is a user; shares "parent" mean
// Fairshare=parent.
func tree(t *testing.T, text string) ([]Node, map[string]int) {
	t.Helper()
	nodes, index := []Node{{Parent: -1, Shares: 1}}, map[string]int{"root": 0}
	for line := range strings.Lines(text) {
		var name, parent, shares string
		var usage int64
		if strings.TrimSpace(line) == "" {
			continue
		}
		if _, err := fmt.Sscan(line, &name, &parent, &shares, &usage); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n := Node{Parent: index[parent], User: name[0] == '@', Usage: usage}
		if n.UseParent = shares == "parent"; !n.UseParent {
			if _, err := fmt.Sscan(shares, &n.Shares); err != nil {
				t.Fatal(err)
			}
		}
		index[name] = len(nodes)
		nodes = append(nodes, n)
	}
	return nodes, index
}

func TestRank(t *testing.T) {
	for _, c := range []struct {
		name, tree string
		want       string // user=rank, of all users
		lf         map[string]float64
	}{
		{"level fair-share is shares over usage among siblings", `
a root 60 0
b root 40 0
@u a 1 30
@v b 1 70`, "@u=2 @v=1", map[string]float64{"a": 2, "b": 0.4 / 0.7, "@u": 1, "@v": 1}},
		{"all of the better account stand above all of the worse", `
a root 1 0
b root 1 0
@a1 a 1 1
@a2 a 1 39
@b1 b 1 0
@b2 b 1 60`, "@a1=4 @a2=3 @b1=2 @b2=1", nil},
		{"no usage is infinity, and users that tie are equal", `
a root 1 0
@x a 5 0
@y a 1 0
@z a 1 10`, "@x=3 @y=3 @z=1", map[string]float64{"@x": math.Inf(1), "@z": 1.0 / 7}},
		{"no shares is nothing, whatever was used", `
a root 1 0
@x a 0 0
@y a 1 10`, "@y=2 @x=1", map[string]float64{"@x": 0}},
		{"accounts that tie are ranked as one", `
a root 1 0
b root 1 0
@a1 a 1 10
@a2 a 1 40
@b1 b 1 20
@b2 b 1 30`, "@a1=4 @b1=3 @b2=2 @a2=1", map[string]float64{"a": 1, "b": 1, "@a1": 2.5, "@b1": 1.25}},
		{"tied accounts with users that tie", `
a root 1 0
b root 1 0
@a1 a 1 25
@a2 a 1 75
@b1 b 1 75
@b2 b 1 25`, "@a1=4 @b2=4 @a2=2 @b1=2", nil},
		{"a user that ties with an account has its best user's rank", `
a root 2 0
@u root 1 50
@v root 1 100
@a1 a 1 20
@a2 a 1 80`, "@u=4 @a1=4 @a2=2 @v=1", map[string]float64{"a": 1.25, "@u": 1.25}},
		{"a user ties with an account's best below further accounts", `
a root 1 0
@u root 1 0
b a 1 0
c a 1 0
@b1 b 1 0
@c1 c 3 0`, "@u=3 @b1=3 @c1=3", nil},
		{"an account without users hands no rank on", `
a root 1 0
@u root 1 0
@v root 0 0`, "@u=2 @v=1", nil},
		{"children of an account with its parent's shares compete one level higher", `
a root 1 0
g a parent 0
@a1 a 1 10
@g1 g 2 10
@g2 g 1 40`, "@g1=3 @a1=2 @g2=1", map[string]float64{"@g1": 3, "@a1": 1.5, "@g2": 0.375}},
		{"users with their parent's shares are equal", `
a root 1 0
b root 1 0
@a1 a parent 100
@a2 a parent 0
@b1 b 1 300`, "@a1=3 @a2=3 @b1=1", map[string]float64{"@a1": 2, "@a2": 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes, index := tree(t, c.tree)
			got, err := Rank(nodes, nil)
			if err != nil {
				t.Fatal(err)
			}
			users := len(strings.Fields(c.want))
			for _, w := range strings.Fields(c.want) {
				name, rank, _ := strings.Cut(w, "=")
				if f := got[index[name]].Factor * float64(users); fmt.Sprintf("%.0f", f) != rank {
					t.Errorf("%s has rank %.3f, want %s", name, f, rank)
				}
			}
			for name, lf := range c.lf {
				if g := got[index[name]].LF; g != lf && math.Abs(g-lf) > 1e-12 {
					t.Errorf("%s has level fair-share %v, want %v", name, g, lf)
				}
			}
		})
	}
}

// The published example of shares (50/30/20 among accounts, 30 and 20 among the first one's users) and its order of
// three users: the user that has used the least of its share goes first.
func TestWorkedExample(t *testing.T) {
	nodes, index := tree(t, `
research root 50 0
engineering root 30 0
students root 20 0
@alice research 30 100
@bob research 20 50
@carol engineering 1 25`)
	got, err := Rank(nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	global := got[index["research"]].Shares * got[index["@alice"]].Shares
	if math.Abs(global-0.3) > 1e-12 {
		t.Errorf("alice is due %v of the cluster, want 0.3", global)
	}
	if got[0].Usage != 175 {
		t.Errorf("the cluster used %d, want 175", got[0].Usage)
	}
	a, b, c := got[index["@alice"]].Factor, got[index["@bob"]].Factor, got[index["@carol"]].Factor
	if !(c > b && b > a) || c != 1 || b != 2.0/3 || a != 1.0/3 {
		t.Errorf("alice %v, bob %v, carol %v: want carol 1, bob 2/3, alice 1/3", a, b, c)
	}
}

func TestBadTrees(t *testing.T) {
	for name, nodes := range map[string][]Node{
		"root with a parent":  {{Parent: 0}},
		"child before parent": {{Parent: -1}, {Parent: 2}, {Parent: 0}},
		"user with children":  {{Parent: -1}, {Parent: 0, User: true}, {Parent: 1}},
		"negative":            {{Parent: -1}, {Parent: 0, Usage: -1}},
	} {
		if _, err := Rank(nodes, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if out, err := Rank(nil, nil); err != nil || len(out) != 0 {
		t.Errorf("an empty tree: %v, %v", out, err)
	}
}

// Random trees without ties: the order is that of a plain depth-first walk, account before account.
func TestOrderOfAccounts(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes := []Node{{Parent: -1}}
		accounts := []int{0}
		for range 200 {
			p := accounts[r.IntN(len(accounts))]
			if r.IntN(3) == 0 {
				accounts = append(accounts, len(nodes))
				nodes = append(nodes, Node{Parent: p, Shares: 1 + r.Int64N(1e6)})
			} else {
				nodes = append(nodes, Node{Parent: p, User: true, Shares: 1 + r.Int64N(1e6), Usage: 1 + r.Int64N(1e12)})
			}
		}
		out, err := Rank(nodes, nil)
		if err != nil {
			t.Fatal(err)
		}
		path := func(i int) (p []int) {
			for ; i > 0; i = nodes[i].Parent {
				p = append([]int{i}, p...)
			}
			return p
		}
		for a := range nodes {
			for b := range nodes {
				if a == b || !nodes[a].User || !nodes[b].User {
					continue
				}
				pa, pb := path(a), path(b)
				k := 0
				for pa[k] == pb[k] {
					k++
				}
				if la, lb := out[pa[k]].LF, out[pb[k]].LF; la > lb && out[a].Factor <= out[b].Factor {
					t.Fatalf("seed %d: user %d (%v) below %d (%v), its branch has %v against %v", seed, a, out[a].Factor, b,
						out[b].Factor, la, lb)
				}
			}
		}
	}
}
