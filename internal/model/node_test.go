package model

import (
	"bytes"
	"fmt"
	"testing"

	"gbatch/internal/golden"
)

// TestNodeStates prints the state names for every combination of admin state, link and use.
func TestNodeStates(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-6s %-8s %-10s %-11s %-6s %-18s %s\n", "admin", "link", "jobs", "long", "short", "base", "usable")
	admins := []string{NodeUp: "up", NodeDrain: "drain", NodeDown: "down"}
	links := []string{LinkUnknown: "unknown", LinkUp: "up", LinkLost: "lost"}
	load := []struct {
		name string
		node Node
	}{
		{"none", Node{}}, {"some CPUs", Node{Jobs: []JobID{1}, UsedCPUs: UpTo(2)}},
		{"all CPUs", Node{Jobs: []JobID{1}, UsedCPUs: UpTo(4)}},
		{"exclusive", Node{Jobs: []JobID{1}, UsedCPUs: UpTo(1), Exclusive: 1}},
	}
	for admin, adminName := range admins {
		for link, linkName := range links {
			for _, l := range load {
				n := l.node
				n.Def, n.Admin, n.Link = &NodeDef{Name: "n1", CPUs: 4}, NodeAdmin(admin), NodeLink(link)
				fmt.Fprintf(&b, "%-6s %-8s %-10s %-11s %-6s %-18s %v\n", adminName, linkName, l.name, n.StateName(), n.ShortState(),
					n.BaseState(), n.Usable())
			}
		}
	}
	golden.Compare(t, "testdata/nodestates.txt", b.Bytes())
}

func TestPartStates(t *testing.T) {
	var b bytes.Buffer
	for s := PartUp; s <= PartInactive; s++ {
		fmt.Fprintln(&b, s)
	}
	if b.String() != "UP\nDOWN\nDRAIN\nINACTIVE\n" {
		t.Errorf("partition states: %q", b.String())
	}
}
