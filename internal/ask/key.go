package ask

import (
	"encoding/binary"

	"gbatch/internal/model"
)

// Key appends bytes to key that are equal for two specifications if, and only if, both need the same of nodes. With
// uid, jobs of different users differ. A new field of model.Spec or model.Needs belongs here, or on the list in
// key_test.go of fields that don't matter.
func Key(key []byte, sp *model.Spec, uid bool) []byte {
	num := func(n int64) { key = binary.AppendVarint(key, n) }
	text := func(t string) { num(int64(len(t))); key = append(key, t...) }
	flag := func(b bool) {
		if b {
			num(1)
		} else {
			num(0)
		}
	}
	flag(sp.More != nil)
	if sp.More != nil {
		key = keyOfNeeds(key, sp.More)
		uid = uid || sp.More.ExclusiveUser
	}
	for _, n := range [...]int32{sp.MinNodes, sp.MaxNodes, sp.Tasks, sp.TasksPerNode, sp.CPUsPerTask, sp.MinCPUs} {
		num(int64(n))
	}
	num(sp.MemPerNode)
	num(sp.MemPerCPU)
	num(sp.TmpMiB)
	flag(sp.Exclusive)
	flag(sp.Overcommit)
	text(sp.Features)
	text(sp.Reservation)
	if uid {
		num(int64(sp.UID))
	}
	num(int64(len(sp.Gres)))
	for i := range sp.Gres {
		g := &sp.Gres[i]
		text(g.Name)
		text(g.Type)
		num(int64(g.Count))
		num(int64(g.Per))
		num(int64(g.Milli))
	}
	num(sp.NoticeS())
	for _, list := range [...][]string{sp.ReqNodes, sp.ExcNodes} {
		num(int64(len(list)))
		for _, name := range list {
			text(name)
		}
	}
	return key
}

// keyOfNeeds is Key for rare requests.
func keyOfNeeds(key []byte, m *model.Needs) []byte {
	num := func(n int64) { key = binary.AppendVarint(key, n) }
	text := func(t string) { num(int64(len(t))); key = append(key, t...) }
	text(m.Prefer)
	num(int64(len(m.Licenses)))
	for _, l := range m.Licenses {
		text(l.Name)
		num(l.Count)
	}
	for _, n := range [...]int32{m.Switches, m.Sockets, m.CoresPerSocket, m.ThreadsPerCore, m.TasksPerSocket,
		m.TasksPerCore, m.CPUsPerGPU, m.Segment, int32(m.Segments)} {
		num(int64(n))
	}
	num(m.MemPerGPU)
	num(m.GPUMemMiB)
	num(int64(m.GresBind))
	text(m.Bind.SocketDist())
	flags := int64(0)
	for i, b := range [...]bool{m.AnyLicense, m.Contiguous, m.Spread, m.FewNodes, m.ExclusiveUser, m.Share,
		m.Reboot, m.External} {
		if b {
			flags |= 1 << i
		}
	}
	num(flags)
	num(int64(len(m.GPUIndex)))
	for _, w := range m.GPUIndex {
		num(int64(w))
	}
	num(int64(len(m.GPUsPerSocket)))
	for _, g := range m.GPUsPerSocket {
		text(g.Type)
		num(int64(g.Count))
	}
	return key
}
