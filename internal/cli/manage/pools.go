package manage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/clustertext"
	"gbatch/internal/format"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// pools.go is show pool: partitions with what is free of them and the quotas of accounts, as ginfo --pools has them.

// poolKeys are its words.
var poolKeys = []string{"names", "partitions", "format"}

// isPool reports whether an entity means pools.
func isPool(entity string) bool { return len(entity) >= 3 && strings.HasPrefix("pools", entity) }

// showPools lists partitions; with format= or -P a line for each partition and resource.
func (m *manage) showPools(c *client.Client, words []string) error {
	var parts []string
	fields := ""
	for _, word := range words {
		key, value, has := strings.Cut(word, "=")
		low := strings.ToLower(key)
		at := slices.IndexFunc(poolKeys, func(k string) bool { return low != "" && strings.HasPrefix(k, low) })
		switch {
		case !has && low == "where":
		case !has && !strings.Contains(word, "="): // show pool NAME
			parts = append(parts, strings.Split(word, ",")...)
		case at == 2:
			fields = value
		case at >= 0:
			parts = append(parts, strings.Split(value, ",")...)
		default:
			return fmt.Errorf(" Unknown option: %s\n The words of show pool are %s", key, strings.Join(poolKeys, ", "))
		}
	}
	var reply proto.PoolsReply
	if err := c.Call(proto.KindPools, &proto.Empty{}, &reply); err != nil {
		return err
	}
	for _, name := range parts {
		if !slices.ContainsFunc(reply.Pools, func(p proto.Pool) bool { return p.Name == name }) {
			return fmt.Errorf(" There is no partition %s; ginfo lists them", name)
		}
	}
	reply.Pools = slices.DeleteFunc(reply.Pools, func(p proto.Pool) bool {
		return len(parts) > 0 && !slices.Contains(parts, p.Name)
	})
	switch {
	case m.json != "":
		return m.poolsJSON(c, &reply)
	case fields == "" && !m.o.Style.Parsable:
		_, err := m.Stdout.Write(clustertext.PoolsTable(reply.Pools, !m.noHeader))
		return err
	}
	var rows []poolRow
	for i := range reply.Pools {
		for k := range reply.Pools[i].TRES {
			rows = append(rows, poolRow{&reply.Pools[i], &reply.Pools[i].TRES[k]})
		}
	}
	return printMoney(m, poolFields(), "Name,TRES,Total,Alloc,Reserved,Down,Free,Headroom,Running,Pending,Policy", fields,
		rows)
}

// poolRow is one resource of a partition.
type poolRow struct {
	pool *proto.Pool
	tres *proto.PoolTRES
}

func poolFields() *format.Language[poolRow] {
	num := func(name string, get func(r *poolRow) int64) format.Field[poolRow] {
		return format.Field[poolRow]{Name: name, Width: 9, Get: func(r *poolRow) string {
			return strconv.FormatInt(get(r), 10)
		}}
	}
	return &format.Language[poolRow]{Noun: "pool", Fields: []format.Field[poolRow]{
		{Name: "Name", Width: 14, Get: func(r *poolRow) string { return r.pool.Name }},
		{Name: "TRES", Width: 16, Get: func(r *poolRow) string { return r.tres.TRES }},
		num("Total", func(r *poolRow) int64 { return r.tres.Total }),
		num("Alloc", func(r *poolRow) int64 { return r.tres.Alloc }),
		num("Reserved", func(r *poolRow) int64 { return r.tres.Reserved }),
		num("Down", func(r *poolRow) int64 { return r.tres.Down }),
		num("Free", func(r *poolRow) int64 { return r.tres.Free() }),
		num("Headroom", func(r *poolRow) int64 { return r.tres.Headroom }),
		num("Running", func(r *poolRow) int64 { return r.pool.Running }),
		num("Pending", func(r *poolRow) int64 { return r.pool.Pending }),
		{Name: "Policy", Width: 10, Get: func(r *poolRow) string { return clustertext.PoolPolicy(r.pool) }},
	}}
}

func (m *manage) poolsJSON(c *client.Client, reply *proto.PoolsReply) error {
	cluster, err := env.ClusterName(c)
	if err != nil {
		return err
	}
	j, fields := m.JSONFrame("pools", m.json), clustertext.PoolJSON()
	for k := range reply.Pools {
		slurmjson.Write(j, "", fields, &reply.Pools[k])
		j.Flush(false)
	}
	return m.JSONFinish(j, cluster, reply.Now)
}
