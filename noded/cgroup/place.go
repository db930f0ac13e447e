package cgroup

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Place names the part of the hierarchies that belongs to a node's gnoded, below whatever this machine's groups are in.
// The spool makes its name: no other gnoded has the same.
func Place(node, spool string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(spool)) // writing to a hash does not fail
	return fmt.Sprintf("gbatch/%s-%08x", safe(node), h.Sum32())
}

// safe makes a node's name one that control groups may have.
func safe(node string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, node)
}
