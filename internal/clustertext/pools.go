package clustertext

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// This file owns pools: partitions with what is free of them and the quotas of accounts.

// PoolsTable gives the text of ginfo --pools: a line for each partition and resource, and below, if there are quotas, a
// line for each account and resource.
func PoolsTable(pools []proto.Pool, header bool) []byte {
	var have, quotas [][]string
	if header {
		have = append(have, []string{"PARTITION", "TRES", "TOTAL", "ALLOC", "RESV", "DOWN", "FREE", "USE", "RUN", "PEND",
			"HEADROOM"})
		quotas = append(quotas, []string{"PARTITION", "ACCOUNT", "TRES", "LIMIT", "GUARANTEED", "USED", "BORROWED", "PEND"})
	}
	anyQuota := false
	for i := range pools {
		p := &pools[i]
		for k := range p.TRES {
			t := &p.TRES[k]
			run, pend := "", "" // once for each partition
			if k == 0 {
				run, pend = strconv.FormatInt(p.Running, 10), strconv.FormatInt(p.Pending, 10)
			}
			have = append(have, []string{p.Name, t.TRES, amount(t.TRES, t.Total), amount(t.TRES, t.Alloc),
				amount(t.TRES, t.Reserved), amount(t.TRES, t.Down), amount(t.TRES, t.Free()), percent(t.Alloc, t.Total),
				run, pend, share(t.TRES, t.Headroom)})
		}
		for k := range p.Quotas {
			q := &p.Quotas[k]
			limit := "-"
			if q.Limit >= 0 {
				limit = amount(q.TRES, q.Limit)
			}
			anyQuota = true
			quotas = append(quotas, []string{p.Name, q.Account, q.TRES, limit, amount(q.TRES, q.Guaranteed),
				amount(q.TRES, q.Used), amount(q.TRES, q.Borrowed()), strconv.FormatInt(q.Pending, 10)})
		}
	}
	out := aligned(have, 2)
	if anyQuota {
		out = append(append(out, '\n'), aligned(quotas, 3)...)
	}
	return out
}

// amount gives a number of units; memory is in MiB.
func amount(tres string, n int64) string {
	if tres == "mem" {
		return walltime.FormatRounded(n)
	}
	return strconv.FormatInt(n, 10)
}

// share gives a part that a partition may lack: "" if it is 0.
func share(tres string, n int64) string {
	if n == 0 {
		return ""
	}
	return amount(tres, n)
}

// percent gives a part of a whole in whole percents.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return strconv.FormatInt((part*100+whole/2)/whole, 10) + "%"
}

// aligned gives lines with columns as wide as their widest cell: the first ones flush left, the others flush right.
func aligned(lines [][]string, left int) []byte {
	var width []int
	for _, l := range lines {
		for k, s := range l {
			if k == len(width) {
				width = append(width, 0)
			}
			width[k] = max(width[k], len(s))
		}
	}
	var b bytes.Buffer
	for _, l := range lines {
		for k, s := range l {
			w := width[k]
			if k < left {
				w = -w
			}
			if k > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%*s", w, s)
		}
		b.Truncate(len(bytes.TrimRight(b.Bytes(), " ")))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// PoolPolicy gives the order of a pool's jobs (QueuePolicy).
func PoolPolicy(p *proto.Pool) string { return cmp.Or(p.Order, model.OrderDefault.String()) }

// PoolJSON is a pool's object in gbatch's own list.
func PoolJSON() []slurmjson.Field[proto.Pool] {
	type tres = proto.PoolTRES
	type quota = proto.PoolQuota
	ofTRES := []slurmjson.Field[tres]{
		{Name: "tres", Str: func(t *tres) string { return t.TRES }},
		{Name: "total", Int: func(t *tres) int64 { return t.Total }},
		{Name: "allocated", Int: func(t *tres) int64 { return t.Alloc }},
		{Name: "reserved", Int: func(t *tres) int64 { return t.Reserved }},
		{Name: "down", Int: func(t *tres) int64 { return t.Down }},
		{Name: "free", Int: (*tres).Free},
		{Name: "headroom", Int: func(t *tres) int64 { return t.Headroom }},
		{Name: "headroom_free", Int: func(t *tres) int64 { return t.Kept }},
	}
	ofQuota := []slurmjson.Field[quota]{
		{Name: "account", Str: func(q *quota) string { return q.Account }},
		{Name: "tres", Str: func(q *quota) string { return q.TRES }},
		{Name: "limit", Num: func(q *quota) (int64, bool, bool) { return max(0, q.Limit), q.Limit >= 0, q.Limit < 0 }},
		{Name: "guaranteed", Int: func(q *quota) int64 { return q.Guaranteed }},
		{Name: "used", Int: func(q *quota) int64 { return q.Used }},
		{Name: "borrowed", Int: (*quota).Borrowed},
		{Name: "pending_jobs", Int: func(q *quota) int64 { return q.Pending }},
	}
	return []slurmjson.Field[proto.Pool]{
		{Name: "name", Str: func(p *proto.Pool) string { return p.Name }},
		{Name: "queue_policy", Str: PoolPolicy},
		{Name: "running_jobs", Int: func(p *proto.Pool) int64 { return p.Running }},
		{Name: "pending_jobs", Int: func(p *proto.Pool) int64 { return p.Pending }},
		{Name: "resources", Put: func(w *slurmjson.Writer, name string, p *proto.Pool) {
			w.Open(name, '[')
			for i := range p.TRES {
				slurmjson.Write(w, "", ofTRES, &p.TRES[i])
			}
			w.Close(']')
		}, Inner: func() []string { return slurmjson.Describe(ofTRES) }},
		{Name: "quotas", Put: func(w *slurmjson.Writer, name string, p *proto.Pool) {
			w.Open(name, '[')
			for i := range p.Quotas {
				slurmjson.Write(w, "", ofQuota, &p.Quotas[i])
			}
			w.Close(']')
		}, Inner: func() []string { return slurmjson.Describe(ofQuota) }},
	}
}
