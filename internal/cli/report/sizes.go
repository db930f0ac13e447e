package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/proto"
)

// sizes.go has the reports of jobs by their sizes.

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
				x.text[name] = r.valueOf(tres, n, all[l.cluster])
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
