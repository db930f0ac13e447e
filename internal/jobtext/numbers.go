package jobtext

import (
	"strconv"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Numbers are the numbers of associations and QOS. Jobs and records have their names only, so a number is what the name
// means now, and 0 once it is gone. The zero value has none.
type Numbers struct {
	assocs map[model.AssocKey]uint32
	qos    map[string]uint32
}

// Add takes the numbers of a part of the cluster's accounts.
func (n *Numbers) Add(c *proto.AccountsChunk) {
	if n.assocs == nil {
		n.assocs, n.qos = map[model.AssocKey]uint32{}, map[string]uint32{}
	}
	for _, a := range c.Assocs {
		n.assocs[a.Key()] = a.ID
	}
	for _, q := range c.QOS {
		n.qos[q.Name] = q.ID
	}
}

// ofAssoc gives the number of a user's association: in the partition, if there is one, or in the account.
func (n *Numbers) ofAssoc(account, user, part string) string {
	if n == nil {
		return "0"
	}
	key := model.AssocKey{Account: model.AccountName(account), User: user, Partition: part}
	id, ok := n.assocs[key]
	if !ok {
		key.Partition = ""
		id = n.assocs[key]
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (n *Numbers) ofQOS(name string) string {
	if n == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(n.qos[name]), 10)
}

// NeedNumbers reports whether a field of jobs or records shows Numbers.
func NeedNumbers(field string) bool { return field == "AssocID" || field == "QOSRAW" }
