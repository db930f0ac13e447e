package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

const energy = "energy"

// whole is a cluster's time in the window, by cluster and resource; nil if no share of it is asked for.
type whole map[string]map[string]*proto.ClusterUse

// clusters asks for the clusters' time.
func (r *call) wholeTime() (whole, []proto.ClusterUse, error) {
	for _, t := range r.tres {
		if _, license := model.TRESLicense(t); license || t == energy {
			return nil, nil, fmt.Errorf("how much %s the cluster had over time is not recorded, so there are no shares of "+
				"it; who used it is: greport cluster AccountUtilizationByUser -T %s", t, t)
		}
	}
	rq := proto.ReportRequest{What: proto.ReportCluster, Start: r.rq.Start, End: r.rq.End, Clusters: r.rq.Clusters}
	all, err := r.ask(rq)
	if err != nil {
		return nil, nil, err
	}
	w := whole{}
	for i := range all.Uses {
		u := &all.Uses[i]
		if w[u.Cluster] == nil {
			w[u.Cluster] = map[string]*proto.ClusterUse{}
		}
		w[u.Cluster][u.TRES] = u
	}
	return w, all.Uses, nil
}

func (w whole) total(cluster, tres string) int64 {
	if u := w[cluster][tres]; u != nil {
		return u.Total
	}
	return 0
}

func (w whole) count(cluster, tres string) int64 {
	if u := w[cluster][tres]; u != nil {
		return u.Count
	}
	return 0
}

// picked gives the resources to report: cpu, those of --tres, or all that there are.
func (r *call) picked(known func(yield func(string))) []string {
	if !r.tresSet {
		return []string{"cpu"}
	}
	if !slices.Contains(r.tres, "all") {
		return r.tres
	}
	out := []string{"cpu", "mem", "energy", "node", "billing"}
	var rest []string
	known(func(t string) {
		if !slices.Contains(out, t) && !slices.Contains(rest, t) {
			rest = append(rest, t)
		}
	})
	slices.Sort(rest)
	return append(out, rest...)
}

func tresOf(rows []proto.ReportRow) func(yield func(string)) {
	return func(yield func(string)) {
		for i := range rows {
			for _, t := range rows[i].TRES {
				yield(t.TRES)
			}
		}
	}
}

// utilization is cluster Utilization.
func (r *call) utilization() error {
	w, uses, err := r.wholeTime()
	if err != nil {
		return err
	}
	var rows []*row
	tres := r.picked(func(yield func(string)) {
		for i := range uses {
			yield(uses[i].TRES)
		}
	})
	for _, cluster := range sortedKeys(w) {
		for _, t := range tres {
			u := w[cluster][t]
			if u == nil {
				continue
			}
			x := newRow()
			x.text["Cluster"], x.text["TresName"] = cluster, t
			x.text["TresCount"] = strconv.FormatInt(u.Count, 10)
			x.text["CPUCount"] = strconv.FormatInt(w.count(cluster, "cpu"), 10)
			for name, n := range map[string]int64{"Allocated": u.Alloc, "Down": u.Down, "PlannedDown": u.PlannedDown,
				"Planned": u.Planned, "Reserved": u.Planned, "Reported": u.Total,
				"Idle": u.Total - u.Alloc - u.Down - u.PlannedDown - u.Planned} {
				x.text[name], x.num[name] = r.value(n, u.Total), n
			}
			x.num["TresCount"] = u.Count
			rows = append(rows, x)
		}
	}
	fields := "Cluster,Allocated,Down,PlannedDown,Idle,Planned,Reported"
	if r.tresSet {
		fields = "Cluster,TresName,Allocated,Down,PlannedDown,Idle,Planned,Reported"
	}
	return r.print("Cluster Utilization", r.usage(), fields, rows)
}

// usageBy asks for sums of usage, and for the clusters' time if shares of it are asked for.
func (r *call) usageBy(by proto.ReportBy) ([]proto.ReportRow, whole, error) {
	rq := r.rq
	rq.What, rq.By = proto.ReportUsage, by
	all, err := r.ask(rq)
	if err != nil {
		return nil, nil, err
	}
	var w whole
	if r.shares() || strings.Contains(strings.ToLower(r.fields), "count") {
		if w, _, err = r.wholeTime(); err != nil {
			return nil, nil, err
		}
	}
	return all.Rows, w, nil
}

// used makes the rows of one line of usage: one for each resource.
func (r *call) used(cluster string, tres []string, sum []model.TRESCount, w whole, set func(x *row)) (out []*row) {
	for _, t := range tres {
		x := newRow()
		n := amount(sum, t)
		x.text["Cluster"], x.text["TresName"] = cluster, t
		x.text["Used"], x.num["Used"] = r.valueOf(t, n, w.total(cluster, t)), n
		x.text["Energy"], x.num["Energy"] = r.valueOf(energy, amount(sum, energy), 0), amount(sum, energy)
		x.text["TresCount"] = strconv.FormatInt(w.count(cluster, t), 10)
		x.text["CPUCount"] = strconv.FormatInt(w.count(cluster, "cpu"), 10)
		set(x)
		out = append(out, x)
	}
	return out
}

// fieldsOf gives a report's columns, with the resource's where --tres was given.
func (r *call) fieldsOf(first string) string {
	if r.tresSet {
		return first + ",TresName,Used"
	}
	return first + ",Used,Energy"
}

func addTRES(sum []model.TRESCount, more []model.TRESCount) []model.TRESCount {
	for _, t := range more {
		sum = model.AddTRES(sum, t.TRES, t.Count)
	}
	return sum
}

// parents asks for the accounts' tree.
func (r *call) parents() (map[string]string, error) {
	out := map[string]string{}
	err := r.c.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error {
		var c proto.AccountsChunk
		if err := r.c.Decode(body, &c); err != nil {
			return err
		}
		for _, a := range c.Accounts {
			out[a.Name] = a.Parent
		}
		return nil
	})
	return out, err
}

// path gives an account and those above it, root first.
func path(parents map[string]string, account string) []string {
	var out []string
	for a := account; a != "" && len(out) < 100; a = parents[a] {
		out = append(out, a)
		if a == model.RootAccount {
			break
		}
	}
	if n := len(out); n == 0 || out[n-1] != model.RootAccount {
		out = append(out, model.RootAccount)
	}
	slices.Reverse(out)
	return out
}

// accountByUser is cluster AccountUtilizationByUser: each account with what is below it, then its own users.
func (r *call) accountByUser() error {
	return r.accountTree(proto.ByUser, "Accounts,Login,Proper", "Account/User")
}

// accountByQOS is cluster AccountUtilizationByQOS.
func (r *call) accountByQOS() error {
	rows, w, err := r.usageBy(proto.ByAccount | proto.ByQOS)
	if err != nil {
		return err
	}
	tres := r.picked(tresOf(rows))
	var out []*row
	for i := range rows {
		u := &rows[i]
		if !r.uses(tres, u.TRES) {
			continue
		}
		out = append(out, r.used(u.Cluster, tres, u.TRES, w, func(x *row) {
			x.text["Accounts"], x.text["QOS"] = u.Account, u.QOS
		})...)
	}
	return r.print("Cluster/Account/QOS Utilization", r.usage(), r.fieldsOf("Cluster,Accounts,QOS"), out)
}

// uses reports whether a sum has anything of the resources.
func (r *call) uses(tres []string, sum []model.TRESCount) bool {
	return slices.ContainsFunc(tres, func(t string) bool { return amount(sum, t) != 0 })
}

// accountTree reports accounts in the order of their tree.
func (r *call) accountTree(by proto.ReportBy, fields, title string) error {
	parents, err := r.parents()
	if err != nil {
		return err
	}
	asked := r.rq.Accounts
	if len(asked) > 0 { // with the accounts below those that were asked for
		low := map[string]bool{}
		for _, a := range asked {
			low[model.AccountName(a)] = true
		}
		for a := range parents {
			if slices.ContainsFunc(path(parents, a), func(up string) bool { return low[up] }) && !low[a] {
				r.rq.Accounts = append(r.rq.Accounts, a)
			}
		}
	}
	rows, w, err := r.usageBy(proto.ByAccount | by)
	if err != nil {
		return err
	}
	tres := r.picked(tresOf(rows))
	type node struct {
		cluster, account, order string
		depth                   int
		sum                     []model.TRESCount
		users                   []*proto.ReportRow
	}
	nodes := map[string]*node{}
	at := func(cluster string, way []string) *node {
		key := cluster + "\x00" + strings.Join(way, "\x00")
		n := nodes[key]
		if n == nil {
			n = &node{cluster: cluster, account: way[len(way)-1], order: key, depth: len(way) - 1}
			nodes[key] = n
		}
		return n
	}
	for i := range rows {
		u := &rows[i]
		account := u.Account
		if account == "" {
			account = model.RootAccount
		}
		way := path(parents, account)
		for k := range way {
			n := at(u.Cluster, way[:k+1])
			n.sum = addTRES(n.sum, u.TRES)
		}
		own := at(u.Cluster, way)
		own.users = append(own.users, u)
	}
	list := make([]*node, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *node) int { return strings.Compare(a.order, b.order) })
	var out []*row
	for _, n := range list {
		if !r.uses(tres, n.sum) || len(asked) > 0 && len(n.users) == 0 {
			continue
		}
		name := n.account
		if r.tree {
			name = strings.Repeat(" ", n.depth) + name
		}
		out = append(out, r.used(n.cluster, tres, n.sum, w, func(x *row) { x.text["Accounts"] = name })...)
		slices.SortStableFunc(n.users, func(a, b *proto.ReportRow) int { return strings.Compare(a.User, b.User) })
		for _, u := range n.users {
			if !r.uses(tres, u.TRES) {
				continue
			}
			out = append(out, r.used(n.cluster, tres, u.TRES, w, func(x *row) {
				x.text["Accounts"], x.text["Login"], x.text["Proper"] = name, u.User, properName(u.User)
			})...)
		}
	}
	return r.print("Cluster/"+title+" Utilization", r.usage(), r.fieldsOf("Cluster,"+fields), out)
}

// byUser sorts users by what they used most, and gives the rows of the first ones of each cluster.
func (r *call) byUser(limit int, group bool) ([]*row, error) {
	rows, w, err := r.usageBy(proto.ByAccount | proto.ByUser)
	if err != nil {
		return nil, err
	}
	tres := r.picked(tresOf(rows))
	if group {
		var merged []proto.ReportRow
		for i := range rows {
			u := rows[i]
			k := slices.IndexFunc(merged, func(m proto.ReportRow) bool { return m.Cluster == u.Cluster && m.User == u.User })
			if k < 0 {
				u.TRES = slices.Clone(u.TRES)
				merged = append(merged, u)
				continue
			}
			merged[k].Account += "," + u.Account
			merged[k].TRES = addTRES(merged[k].TRES, u.TRES)
		}
		rows = merged
	}
	slices.SortStableFunc(rows, func(a, b proto.ReportRow) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(amount(b.TRES, tres[0]), amount(a.TRES, tres[0])),
			cmp.Compare(a.User, b.User))
	})
	var out []*row
	shown := map[string]int{}
	for i := range rows {
		u := &rows[i]
		if !r.uses(tres, u.TRES) || limit > 0 && shown[u.Cluster] >= limit {
			continue
		}
		shown[u.Cluster]++
		out = append(out, r.used(u.Cluster, tres, u.TRES, w, func(x *row) {
			x.text["Accounts"], x.text["Login"], x.text["Proper"] = u.Account, u.User, properName(u.User)
		})...)
	}
	return out, nil
}

// userByAccount is cluster UserUtilizationByAccount.
func (r *call) userByAccount() error {
	rows, err := r.byUser(0, false)
	if err != nil {
		return err
	}
	return r.print("Cluster/User/Account Utilization", r.usage(), r.fieldsOf("Cluster,Login,Proper,Accounts"), rows)
}

// topUsage is user TopUsage.
func (r *call) topUsage() error {
	rows, err := r.byUser(r.top, r.group)
	if err != nil {
		return err
	}
	return r.print(fmt.Sprintf("Top %d Users", r.top), r.usage(), r.fieldsOf("Cluster,Login,Proper,Accounts"), rows)
}

// waits is job Waits, which Slurm has not: how long jobs that started waited since they were eligible.
func (r *call) waits() error {
	rows, _, err := r.usageBy(proto.ByAccount | proto.ByPartition)
	if err != nil {
		return err
	}
	var out []*row
	names := []string{"W1", "W10", "W60", "W360", "W1440", "WMore"}
	for i := range rows {
		u := &rows[i]
		if u.Started == 0 {
			continue
		}
		x := newRow()
		x.text["Cluster"], x.text["Accounts"], x.text["Name"] = u.Cluster, u.Account, u.Partition
		x.text["Jobs"], x.num["Jobs"] = strconv.FormatInt(u.Started, 10), u.Started
		x.text["Mean"], x.num["Mean"] = walltime.Elapsed(u.WaitS/u.Started), u.WaitS/u.Started
		for k, name := range names {
			if k < len(u.Waits) {
				x.text[name], x.num[name] = strconv.FormatInt(u.Waits[k], 10), u.Waits[k]
			}
		}
		out = append(out, x)
	}
	return r.print("Job Waits", "From eligible to start, of jobs that started; by account and partition",
		"Cluster,Accounts,Name,Jobs,Mean,"+strings.Join(names, ","), out)
}

// completion is job Completion, which Slurm has not: how jobs ended.
func (r *call) completion() error {
	rows, _, err := r.usageBy(proto.ByAccount | proto.ByUser)
	if err != nil {
		return err
	}
	var out []*row
	fields := []struct {
		name  string
		state model.JobState
	}{{"Completed", model.Completed}, {"Failed", model.Failed}, {"Cancelled", model.Cancelled},
		{"Timeout", model.Timeout},
		{"OutOfMemory", model.OutOfMemory}, {"NodeFail", model.NodeFail}, {"Preempted", model.Preempted}}
	for i := range rows {
		u := &rows[i]
		all := int64(0)
		for _, n := range u.Ended {
			all += n
		}
		if all == 0 {
			continue
		}
		x := newRow()
		x.text["Cluster"], x.text["Accounts"], x.text["Login"] = u.Cluster, u.Account, u.User
		x.text["Ended"], x.num["Ended"] = strconv.FormatInt(all, 10), all
		for _, f := range fields {
			n := int64(0)
			if int(f.state) < len(u.Ended) {
				n = u.Ended[f.state]
			}
			x.text[f.name], x.num[f.name] = strconv.FormatInt(n, 10), n
		}
		x.text["Rate"] = fmt.Sprintf("%.2f%%", float64(x.num["Completed"])/float64(all)*100)
		out = append(out, x)
	}
	return r.print("Job Completion", "Jobs that ended; by account and user",
		"Cluster,Accounts,Login,Ended,Completed,Failed,Cancelled,Timeout,OutOfMemory,NodeFail,Preempted,Rate", out)
}

// reserved is reservation Utilization.
func (r *call) reserved() error {
	rq := r.rq
	rq.What = proto.ReportResvs
	all, err := r.ask(rq)
	if err != nil {
		return err
	}
	tres := r.picked(func(yield func(string)) {
		for i := range all.Resvs {
			for _, t := range all.Resvs[i].TRES {
				yield(t.TRES)
			}
		}
	})
	var out []*row
	for i := range all.Resvs {
		u := &all.Resvs[i]
		for _, t := range tres {
			x := newRow()
			had, held := amount(u.TRES, t), amount(u.Alloc, t)
			x.text["Cluster"], x.text["Name"], x.text["TresName"], x.text["Nodes"] = u.Cluster, u.Name, t, u.Nodes
			x.text["Start"], x.text["End"] = r.Stamp(u.Start, "Unknown"), r.Stamp(u.End, "Unknown")
			for name, n := range map[string]int64{"Allocated": held, "Idle": max(had-held, 0), "TotalTime": had,
				"TresTime": had} {
				x.text[name], x.num[name] = r.valueOf(t, n, had), n
			}
			out = append(out, x)
		}
	}
	note := "Usage reported in TRES " + r.unitText()
	if r.unit == "Percent" {
		note = r.usage()
	}
	fields := "Cluster,Name,Start,End,TresName,Allocated%20,Idle%20"
	if r.per() {
		fields = "Cluster,Name,Start,End,TresName,Allocated%29,Idle%29"
	}
	return r.print("Reservation Utilization", note, fields, out)
}
