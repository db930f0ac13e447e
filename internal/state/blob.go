package state

import (
	"encoding/binary"
	"fmt"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// Scripts and environments are stored once per content and counted: one reference for each job record that has them as
// its script, and one for each that has them as its environment.
//
// How much each user has stored is derived, and decides nothing here: after a snapshot, content that several users have
// may count for another of them, so only the leader looks at it, before it proposes a submission.

// countedBlob is from how many stored bytes on content counts for its user. What is smaller is bounded by MaxJobCount.
const countedBlob = 4 << 10

// holdings is how many bytes of content each user has stored.
type holdings struct {
	owners map[string]uint32         // of content that counts: the user of the first job that has it
	bytes  *btree.Map[uint32, int64] // by user; a user without any is not in it
}

func newHoldings() holdings {
	return holdings{owners: map[string]uint32{}, bytes: new(btree.Map[uint32, int64])}
}

// add counts content that has come.
func (h *holdings) add(b *model.Blob, uid uint32) {
	if len(b.Data) < countedBlob {
		return
	}
	if _, counted := h.owners[b.Key]; counted {
		return
	}
	h.owners[b.Key] = uid
	had, _ := h.bytes.Get(uid)
	h.bytes.Set(uid, had+int64(len(b.Data)))
}

// drop counts content that has gone.
func (h *holdings) drop(b *model.Blob) {
	uid, counts := h.owners[b.Key]
	if !counts {
		return
	}
	delete(h.owners, b.Key)
	if had, _ := h.bytes.Get(uid); had > int64(len(b.Data)) {
		h.bytes.Set(uid, had-int64(len(b.Data)))
	} else {
		h.bytes.Delete(uid)
	}
}

// hold counts all content anew.
func (s *State) hold() {
	s.held = newHoldings()
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		for _, key := range [...]string{j.Spec.Script, j.Spec.Env} {
			if b, ok := s.blobs.Get(key); ok {
				s.held.add(b, j.Spec.UID)
			}
		}
		return true
	})
}

// checkHeld: what users have stored is all content that counts.
func (s *State) checkHeld() error {
	var users, all int64
	s.held.bytes.Scan(func(_ uint32, n int64) bool { users += n; return true })
	s.blobs.Scan(func(_ string, b *model.Blob) bool {
		if len(b.Data) >= countedBlob {
			all += int64(len(b.Data))
		}
		return true
	})
	if users != all {
		return fmt.Errorf("users are said to have %d bytes of scripts and environments, there are %d", users, all)
	}
	return nil
}

// keepBlob counts one more reference to b, and stores it for a user if it is new. It reports false if b has no content
// and isn't stored yet.
func (s *State) keepBlob(b *model.Blob, uid uint32) bool {
	if b.Key == "" {
		return true
	}
	old, ok := s.blobs.Get(b.Key)
	if !ok {
		if b.Data == nil {
			return false
		}
		nb := *b
		nb.Refs = 1
		s.blobs.Set(b.Key, &nb)
		s.held.add(&nb, uid)
		return true
	}
	nb := *old
	nb.Refs++
	s.blobs.Set(b.Key, &nb)
	return true
}

// useBlob counts one more reference to stored content.
func (s *State) useBlob(key string) {
	if old, ok := s.blobs.Get(key); ok {
		nb := *old
		nb.Refs++
		s.blobs.Set(key, &nb)
	}
}

// dropBlob counts one reference less, and deletes the content with the last one.
func (s *State) dropBlob(key string) {
	old, ok := s.blobs.Get(key)
	if !ok {
		return
	}
	if old.Refs <= 1 {
		s.blobs.Delete(key)
		s.held.drop(old)
		return
	}
	nb := *old
	nb.Refs--
	s.blobs.Set(key, &nb)
}

// blobKey gives the stored copy of a key, so that a job and its content share one string.
func (s *State) blobKey(key string) string {
	if b, ok := s.blobs.Get(key); ok {
		return b.Key
	}
	return key
}

// Tens of thousands of pending jobs have few different users, directories, limits and node lists: equal values are
// stored once. These tables are not facts; they only save memory.

// maxInterned bounds each table; beyond it values are not shared.
const maxInterned = 1 << 16

// interned holds one copy of each value.
type interned struct {
	texts  map[string]string
	lists  map[string][]string
	groups map[string][]uint32
	limits map[string][]model.RLimit
	gres   map[string][]model.GresReq
	key    []byte // scratch
}

func newInterned() *interned {
	return &interned{texts: map[string]string{}, lists: map[string][]string{}, groups: map[string][]uint32{},
		limits: map[string][]model.RLimit{}, gres: map[string][]model.GresReq{}}
}

// text gives the kept copy of t.
func (in *interned) text(t string) string {
	if t == "" {
		return ""
	}
	if known, ok := in.texts[t]; ok {
		return known
	}
	if len(in.texts) < maxInterned {
		in.texts[t] = t
	}
	return t
}

// share gives the kept copy of list. write appends an element's bytes to the table's key, different bytes for different
// elements.
func share[T any](in *interned, table map[string][]T, list []T, write func(key []byte, x T) []byte) []T {
	if len(list) == 0 {
		return nil
	}
	in.key = in.key[:0]
	for _, x := range list {
		in.key = write(in.key, x)
	}
	if known, ok := table[string(in.key)]; ok {
		return known
	}
	if len(table) < maxInterned {
		table[string(in.key)] = list
	}
	return list
}

func writeText(key []byte, t string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(t))), t...)
}

func (in *interned) list(list []string) []string {
	for i := range list {
		list[i] = in.text(list[i])
	}
	return share(in, in.lists, list, writeText)
}

// spec makes sp share values with other jobs. sp, and everything that it refers to, is not published yet.
func (in *interned) spec(sp *model.Spec) {
	for _, p := range []*string{&sp.User, &sp.Group, &sp.Account, &sp.QOS, &sp.WCKey, &sp.WorkDir, &sp.StdIn, &sp.StdOut,
		&sp.StdErr, &sp.Host, &sp.Features} {
		*p = in.text(*p)
	}
	sp.Partitions, sp.ReqNodes, sp.ExcNodes = in.list(sp.Partitions), in.list(sp.ReqNodes), in.list(sp.ExcNodes)
	sp.Groups = share(in, in.groups, sp.Groups,
		func(key []byte, g uint32) []byte { return binary.BigEndian.AppendUint32(key, g) })
	sp.Limits = share(in, in.limits, sp.Limits, func(key []byte, l model.RLimit) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(key, l.Resource),
			l.Soft), l.Hard)
	})
	if sp.Via != nil {
		via := *sp.Via
		for _, p := range []*string{&via.Serial, &via.Family, &via.Role, &via.Name} {
			*p = in.text(*p)
		}
		sp.Via = &via
	}
	for i := range sp.Gres {
		sp.Gres[i].Name, sp.Gres[i].Type = in.text(sp.Gres[i].Name), in.text(sp.Gres[i].Type)
	}
	sp.Gres = share(in, in.gres, sp.Gres, func(key []byte, g model.GresReq) []byte {
		return append(binary.BigEndian.AppendUint32(writeText(writeText(key, g.Name), g.Type), uint32(g.Count)), byte(g.Per),
			byte(g.Milli), byte(g.Milli>>8), byte(g.Milli>>16), byte(g.Milli>>24))
	})
}

// internSpec makes sp share values with other jobs, including the keys of its script and environment.
func (s *State) internSpec(sp *model.Spec) {
	s.shared.spec(sp)
	sp.Script, sp.Env = s.blobKey(sp.Script), s.blobKey(sp.Env)
}
