package pmi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The limits. Those of names are what PMI-1 programs are told.
const (
	MaxName  = 256  // bytes of the space's name, and of a published service
	MaxKey   = 64   // bytes of a key
	MaxValue = 1024 // bytes of a value
	MaxSpace = 64 << 20
	pairHead = 8 // bytes beside a pair's text, in frames and in the account of the space
)

// errFull says that the space has no room.
var errFull = fmt.Errorf("the key-value space is full: a step's keys and values may have %d MiB", MaxSpace>>20)

// space is a key-value space.
type space struct {
	values map[string]string
	bytes  int
}

func (s *space) put(key, value string) error {
	switch {
	case key == "" || len(key) > MaxKey:
		return fmt.Errorf("a key has 1 to %d bytes", MaxKey)
	case len(value) > MaxValue:
		return fmt.Errorf("a value has at most %d bytes", MaxValue)
	}
	more := len(key) + len(value) + pairHead
	if old, ok := s.values[key]; ok {
		more = len(value) - len(old)
	}
	if s.bytes+more > MaxSpace {
		return errFull
	}
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.bytes += more
	s.values[key] = value
	return nil
}

// appendPair adds a pair to the data of frames.
func appendPair(b []byte, key, value string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(append(b, key...), value...)
}

// putAll puts the pairs of frames' data.
func (s *space) putAll(b []byte) error {
	for len(b) > 0 {
		if len(b) < pairHead {
			return errors.New("a pair is cut off")
		}
		k, v := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
		if b = b[pairHead:]; k > MaxKey || v > MaxValue || k+v > len(b) {
			return errors.New("a pair is cut off")
		}
		if err := s.put(string(b[:k]), string(b[k:k+v])); err != nil {
			return err
		}
		b = b[k+v:]
	}
	return nil
}

// Mapping says in MPICH's words which node each task is on: (vector,(first node,nodes,tasks on each),...). nodes has
// each task's node by rank. The result is "" where it is too long for a value; programs then compare host names.
func Mapping(nodes []int) string {
	type block struct{ node, nodes, tasks int }
	var runs []block
	for i := 0; i < len(nodes); {
		n := 1
		for i+n < len(nodes) && nodes[i+n] == nodes[i] {
			n++
		}
		if k := len(runs) - 1; k >= 0 && runs[k].tasks == n && runs[k].node+runs[k].nodes == nodes[i] {
			runs[k].nodes++
		} else {
			runs = append(runs, block{nodes[i], 1, n})
		}
		i += n
	}
	same := true // programs repeat the list until all tasks have a node
	for _, r := range runs {
		same = same && r == runs[0]
	}
	if same && len(runs) > 1 {
		runs = runs[:1]
	}
	var b strings.Builder
	b.WriteString("(vector")
	for _, r := range runs {
		b.WriteString(",(" + strconv.Itoa(r.node) + "," + strconv.Itoa(r.nodes) + "," + strconv.Itoa(r.tasks) + ")")
	}
	b.WriteString(")")
	if b.Len() > MaxValue {
		return ""
	}
	return b.String()
}
