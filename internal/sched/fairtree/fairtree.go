package fairtree

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Node is one association: an account, or a user in one.
type Node struct {
	Parent    int   // index of the account above; -1 for the root, which is node 0. Parents stand before their children
	User      bool  // a leaf that is ranked
	UseParent bool  // Fairshare=parent; Shares is not used then
	Shares    int64 // raw shares, 0 or more
	Usage     int64 // of the node itself, in any unit: decayed, with running jobs. An account's usage is the sum below it
}

// Level is the result of the algorithm for a node.
type Level struct {
	Usage  int64   // of the node and everything below it
	Shares float64 // S: shares as a part of its own and its siblings', 0 to 1
	Used   float64 // U: usage as a part of the account's, 0 to 1
	// level fair-share S/U: 0 to +Inf, above 1 for a node that has used less than its share. +Inf without usage, 0
	// without shares
	LF     float64
	Factor float64 // users only: rank / number of users, above 0 and at most 1
}

// Rank computes every node's level and every user's factor; out is overwritten and used where it is large enough.
//
// A user with UseParent takes its account's level fair-share. An account with UseParent is passed over: its children
// compete beside those of the nearest account above that has shares of its own.
//
// Ties: sibling users with the same LF have the same rank. The children of accounts with the same LF are ranked as one
// list. A user that ties with an account has the rank of the account's best user.
//
// It costs O(n log n) in the number of nodes. The error names a node that doesn't fit a tree.
func Rank(nodes []Node, out []Level) ([]Level, error) {
	if cap(out) < len(nodes) {
		out = make([]Level, len(nodes))
	}
	out = out[:len(nodes)]
	r := ranker{nodes: nodes, out: out}
	if err := r.tree(); err != nil {
		return nil, err
	}
	r.levels()
	r.rnt = r.users
	if len(nodes) > 0 {
		r.rank(r.below(0, make([]int32, 0, 64)))
	}
	return out, nil
}

type ranker struct {
	nodes []Node
	out   []Level
	up    []int32 // the account that a node competes in; parent-sharing accounts are passed over
	first []int32 // children of i in the tree of up: kids[first[i]:first[i+1]]
	kids  []int32
	users int

	rnt  int  // rank of the next user if it ties with nobody
	last int  // rank of the last user
	tied bool // the next user takes the rank of the last
}

// tree finds the account in which each node competes, and sums usage upwards.
func (r *ranker) tree() error {
	n := len(r.nodes)
	r.up, r.first, r.kids = make([]int32, n), make([]int32, n+2), make([]int32, n)
	for i := range r.nodes {
		d := &r.nodes[i]
		r.out[i] = Level{Usage: d.Usage}
		switch {
		case i == 0 && (d.Parent != -1 || d.User):
			return fmt.Errorf("node 0 is the root: it has parent %d", d.Parent)
		case i == 0:
			r.up[0] = -1
			continue
		case d.Parent < 0 || d.Parent >= i || r.nodes[d.Parent].User:
			return fmt.Errorf("node %d has parent %d, which is no account before it", i, d.Parent)
		case d.Shares < 0 || d.Usage < 0:
			return fmt.Errorf("node %d has %d shares and usage %d: neither may be negative", i, d.Shares, d.Usage)
		}
		up := int32(d.Parent)
		for up > 0 && r.nodes[up].UseParent {
			up = r.up[up] // already that of an account with shares of its own
		}
		r.up[i] = up
		if d.User {
			r.users++
		}
	}
	for i := n - 1; i > 0; i-- {
		p := &r.out[r.nodes[i].Parent]
		p.Usage = addUp(p.Usage, r.out[i].Usage)
		if r.nodes[i].User || !r.nodes[i].UseParent {
			r.first[r.up[i]+2]++
		}
	}
	for i := 2; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	for i := 1; i < n; i++ {
		if r.nodes[i].User || !r.nodes[i].UseParent {
			at := &r.first[r.up[i]+1]
			r.kids[*at] = int32(i)
			*at++
		}
	}
	return nil
}

// addUp adds and stops at the largest number: differences between usages that large don't matter.
func addUp(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// levels computes S, U and LF from the root down.
func (r *ranker) levels() {
	for i := range r.nodes {
		l := &r.out[i]
		if i == 0 {
			l.Shares, l.Used, l.LF = 1, 1, 1
			if l.Usage == 0 {
				l.Used, l.LF = 0, math.Inf(1)
			}
		}
		var shares int64
		kids := r.kids[r.first[i]:r.first[i+1]]
		for _, k := range kids {
			if !r.nodes[k].UseParent {
				shares = addUp(shares, r.nodes[k].Shares)
			}
		}
		for _, k := range kids {
			c, d := &r.out[k], &r.nodes[k]
			if l.Usage > 0 {
				c.Used = float64(c.Usage) / float64(l.Usage)
			}
			if d.UseParent {
				c.Shares, c.Used, c.LF = l.Shares, l.Used, l.LF
				continue
			}
			if shares > 0 {
				c.Shares = float64(d.Shares) / float64(shares)
			}
			switch {
			case d.Shares == 0:
				c.LF = 0
			case c.Usage == 0:
				c.LF = math.Inf(1)
			default: // S/U with one division, so that equal quotients are equal numbers
				c.LF = float64(d.Shares) * float64(l.Usage) / (float64(shares) * float64(c.Usage))
			}
		}
	}
	for i := 1; i < len(r.nodes); i++ {
		if d := &r.nodes[i]; d.UseParent && !d.User { // passed over: it shows what its account has
			up, own := r.out[r.up[i]], &r.out[i]
			own.Shares, own.LF = up.Shares, up.LF
			own.Used = up.Used
		}
	}
}

// below appends the children of an account to list.
func (r *ranker) below(i int32, list []int32) []int32 {
	return append(list, r.kids[r.first[i]:r.first[i+1]]...)
}

// rank ranks a list of siblings, or of children of accounts that tie, from the best down.
func (r *ranker) rank(list []int32) {
	slices.SortFunc(list, func(a, b int32) int {
		if c := cmp.Compare(r.out[b].LF, r.out[a].LF); c != 0 {
			return c
		}
		if ua, ub := r.nodes[a].User, r.nodes[b].User; ua != ub { // users before accounts of the same LF
			if ua {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	for len(list) > 0 {
		n, people := 0, 0
		for n < len(list) && r.out[list[n]].LF == r.out[list[0]].LF {
			if r.nodes[list[n]].User {
				people++
			}
			n++
		}
		if people > 0 {
			if !r.tied {
				r.last = r.rnt
			}
			for _, u := range list[:people] {
				r.out[u].Factor = float64(r.last) / float64(r.users)
			}
			r.rnt -= people
			r.tied = true // with the best of the accounts beside them
		}
		var children []int32
		for _, a := range list[people:n] {
			children = r.below(a, children)
		}
		r.rank(children)
		r.tied = false
		list = list[n:]
	}
}
