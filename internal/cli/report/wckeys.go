package report

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// wckeys.go has the reports of usage by wckeys.

// keyFields are those of the reports by wckey, which have no energy.
func (r *call) keyFields(first string) string {
	return strings.TrimSuffix(r.fieldsOf(first), ",Energy")
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
