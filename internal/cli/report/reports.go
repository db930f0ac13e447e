package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// whole is a cluster's time in the window, by cluster and resource; nil if no share of it is asked for.
type whole map[string]map[string]*proto.ClusterUse

// clusters asks for the clusters' time.
func (r *call) wholeTime() (whole, []proto.ClusterUse, error) {
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
		x.text["Used"], x.num["Used"] = r.value(n, w.total(cluster, t)), n
		x.text["Energy"] = r.value(amount(sum, "energy"), w.total(cluster, "energy"))
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

// keyFields are those of the reports by wckey, which have no energy.
func (r *call) keyFields(first string) string {
	return strings.TrimSuffix(r.fieldsOf(first), ",Energy")
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

// userByWCKey is cluster UserUtilizationByWCKey: users by what they used most of a wckey.
func (r *call) userByWCKey() error {
	rows, err := r.byKey(false)
	if err != nil {
		return err
	}
	return r.print("Cluster/User/WCKey Utilization", r.usage(), r.keyFields("Cluster,Login,Proper,WCKey%15"), rows)
}

// wckeyByUser is cluster WCKeyUtilizationByUser: each wckey's sum, then its users.
func (r *call) wckeyByUser() error {
	rows, err := r.byKey(true)
	if err != nil {
		return err
	}
	return r.print("Cluster/WCKey/User Utilization", r.usage(), r.keyFields("Cluster,WCKey%15,Login,Proper"), rows)
}

// byKey gives usage by wckeys and users; with sums, in order of the keys, each with a line about all of its users.
func (r *call) byKey(sums bool) ([]*row, error) {
	rows, w, err := r.usageBy(proto.ByUser | proto.ByWCKey)
	if err != nil {
		return nil, err
	}
	tres := r.picked(tresOf(rows))
	key := func(u *proto.ReportRow) string { return "" }
	if sums {
		key = func(u *proto.ReportRow) string { return u.WCKey }
	}
	slices.SortStableFunc(rows, func(a, b proto.ReportRow) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(key(&a), key(&b)),
			cmp.Compare(amount(b.TRES, tres[0]), amount(a.TRES, tres[0])), cmp.Compare(a.User, b.User),
			cmp.Compare(a.WCKey, b.WCKey))
	})
	var out []*row
	for i := range rows {
		u := &rows[i]
		if sums && (i == 0 || rows[i-1].Cluster != u.Cluster || rows[i-1].WCKey != u.WCKey) {
			var all []model.TRESCount
			for k := i; k < len(rows) && rows[k].Cluster == u.Cluster && rows[k].WCKey == u.WCKey; k++ {
				all = addTRES(all, rows[k].TRES)
			}
			if r.uses(tres, all) {
				out = append(out, r.used(u.Cluster, tres, all, w, func(x *row) { x.text["WCKey"] = u.WCKey })...)
			}
		}
		if r.uses(tres, u.TRES) {
			out = append(out, r.used(u.Cluster, tres, u.TRES, w, func(x *row) {
				x.text["WCKey"], x.text["Login"], x.text["Proper"] = u.WCKey, u.User, properName(u.User)
			})...)
		}
	}
	return out, nil
}

// sizes is job SizesByAccount: without FlatView the usage of an account is counted with the one below root.
func (r *call) sizes() error { return r.jobSizes("Accounts", "", proto.ByAccount) }

func (r *call) sizesAndWCKey() error {
	return r.jobSizes("Accounts%-20", "", proto.ByAccount|proto.ByWCKey)
}

func (r *call) sizesByWCKey() error { return r.jobSizes("SizeKey", "by Wckey ", proto.ByWCKey) }

// groups reads Grouping=: the least sizes of all classes but the first.
func (r *call) groups(rows []proto.ReportRow) (least []int64, each bool, err error) {
	switch {
	case r.grouping == "":
		return []int64{50, 250, 500, 1000}, false, nil
	case strings.EqualFold(r.grouping, "individual"):
		for i := range rows {
			if n := rows[i].CPUs; n > 0 && !slices.Contains(least, n) {
				least = append(least, n)
			}
		}
		slices.Sort(least)
		return least, true, nil
	}
	for _, v := range env.SplitList(r.grouping) {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			return nil, false, fmt.Errorf("Grouping=%s is no list of sizes, such as 50,250", r.grouping)
		}
		least = append(least, n)
	}
	slices.Sort(least)
	return slices.Compact(least), false, nil
}

// headsOf gives the columns of classes of sizes.
func headsOf(least []int64, each bool, of string) []column {
	var heads []column
	for i, n := range least {
		switch {
		case each:
			heads = append(heads, column{fmt.Sprintf("Size%d", i), fmt.Sprintf("%d %s", n, of), 13, true})
		case i == 0:
			heads = append(heads, column{"Size0", fmt.Sprintf("0-%d %s", n-1, of), 13, true})
		default:
			title := fmt.Sprintf("%d-%d %s", least[i-1], n-1, of)
			heads = append(heads, column{fmt.Sprintf("Size%d", i), title, 13, true})
		}
	}
	if !each {
		last := fmt.Sprintf(">= %d %s", least[len(least)-1], of)
		heads = append(heads, column{fmt.Sprintf("Size%d", len(least)), last, 13, true})
	}
	return heads
}

func (r *call) jobSizes(fields, title string, by proto.ReportBy) error {
	if len(r.tres) > 1 {
		return errors.New("Job report only supports a single --tres type: make a report for each")
	}
	rows, _, err := r.usageBy(by | proto.BySize)
	if err != nil {
		return err
	}
	parents, err := r.parents()
	if err != nil {
		return err
	}
	least, each, err := r.groups(rows)
	if err != nil {
		return err
	}
	tres, of := "cpu", "CPUs"
	if len(r.tres) == 1 && r.tres[0] != tres {
		tres, of = r.tres[0], "TRES"
	}
	heads := headsOf(least, each, of)
	type line struct {
		cluster, account string
		sizes            []int64
		sum              int64
	}
	lines, all := map[string]*line{}, map[string]int64{}
	for i := range rows {
		u := &rows[i]
		account := u.Account
		if way := path(parents, account); !r.flat && len(way) > 2 {
			account = way[1]
		}
		switch {
		case by == proto.ByWCKey:
			account = u.WCKey
		case by&proto.ByWCKey != 0: // as in Slurm, they are one word
			account += ":" + u.WCKey
		}
		key := u.Cluster + "\x00" + account
		l := lines[key]
		if l == nil {
			l = &line{cluster: u.Cluster, account: account, sizes: make([]int64, len(heads))}
			lines[key] = l
		}
		n := amount(u.TRES, tres)
		if r.count {
			n = u.Jobs
		}
		k, found := slices.BinarySearch(least, u.CPUs)
		if found && !each {
			k++
		}
		if k < len(heads) {
			l.sizes[k] += n
		}
		l.sum += n
		all[u.Cluster] += n
	}
	var out []*row
	for _, key := range sortedKeys(lines) {
		l := lines[key]
		if l.sum == 0 {
			continue
		}
		x := newRow()
		x.text["Cluster"], x.text["Accounts"], x.text["SizeKey"] = l.cluster, l.account, l.account
		for i, n := range l.sizes {
			name := heads[i].name
			if x.num[name] = n; r.count {
				x.text[name] = strconv.FormatInt(n, 10)
			} else {
				x.text[name] = r.value(n, all[l.cluster])
			}
		}
		x.text["Share"] = fmt.Sprintf("%.2f%%", float64(l.sum)/float64(max(all[l.cluster], 1))*100)
		out = append(out, x)
	}
	list := "Cluster," + fields
	for _, h := range heads {
		list += "," + h.name
	}
	note := "Time reported in " + r.unitText()
	if r.count {
		note = "Units are in number of jobs ran"
	}
	if r.tresSet {
		note = "TRES type is " + tres + "\n" + note
	}
	return r.print(strings.TrimSpace("Job Sizes "+title), note, list+",Share", out, append(heads,
		column{"Share", "% of cluster", 12, false}, column{"SizeKey", "Wckey", 9, false})...)
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
				x.text[name], x.num[name] = r.value(n, had), n
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
