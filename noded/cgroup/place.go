package cgroup

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Place names the part of the hierarchies that belongs to a node's gnoded. A hash of the spool's path is part of the
// name, since no other gnoded has the same spool.
func Place(node, spool string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(spool)) // writing to a hash does not fail
	return fmt.Sprintf("gbatch/%s-%08x", safe(node), h.Sum32())
}

// safe replaces the characters of a node's name that a group's name can't have.
func safe(node string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, node)
}
