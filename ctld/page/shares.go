package page

import (
	"fmt"
	"math"

	"gbatch/internal/proto"
)

// shareLine is a line of the tree.
type shareLine struct {
	*proto.ShareRow
	Pad   int // pixels, by its depth
	Key   string
	Mine  bool
	Used  *bar
	Level string
	Place string
}

// sharesView is the view.
type sharesView struct {
	Rows  []shareLine
	Left  int
	Place []string
}

// shares shows the tree of accounts and users, and where the reader stands in it.
func shares(q *request) (any, error) {
	var reply proto.SharesReply
	if err := q.ask(proto.KindShares, &proto.SharesRequest{}, &reply); err != nil {
		return nil, err
	}
	v := &sharesView{}
	for i := range reply.Rows {
		r := &reply.Rows[i]
		s := shareLine{ShareRow: r, Pad: 16 * int(r.Depth), Key: fmt.Sprint(r.ID, r.Account, "/", r.User, "/", r.Partition),
			Mine: r.User != "" && r.User == q.who.User} // UID is of users with usage only
		if !math.IsInf(r.LevelFS, 0) && !math.IsNaN(r.LevelFS) {
			s.Level = fmt.Sprintf("%.2f", r.LevelFS)
		}
		if pct := int64(math.Round(100 * r.Used)); r.Depth > 0 {
			s.Used = barOf(pct, 100, fmt.Sprintf("%d\u00a0%% of %.0f\u00a0%%", pct, 100*r.NormShares))
			if r.Used > r.NormShares {
				s.Used.Class = "low"
			}
		}
		if s.Mine {
			v.place(reply.Rows, r)
		}
		if len(v.Rows) == 5*maxRows && !s.Mine {
			v.Left++
			continue
		}
		v.Rows = append(v.Rows, s)
	}
	return v, nil
}

// place says how many users come before the reader.
func (v *sharesView) place(rows []proto.ShareRow, me *proto.ShareRow) {
	best := map[string]float64{} // a user has an association with each account
	for i := range rows {
		if r := &rows[i]; r.User != "" {
			best[r.User] = max(best[r.User], r.FairShare)
		}
	}
	best[me.User] = me.FairShare
	ahead, all := 0, len(best)
	for _, factor := range best {
		if factor > me.FairShare {
			ahead++
		}
	}
	text := fmt.Sprintf("With account %s you are behind %d of %d users.", me.Account, ahead, all)
	switch {
	case all == 1:
		text = fmt.Sprintf("With account %s you are the only user.", me.Account)
	case ahead == 0:
		text = fmt.Sprintf("With account %s nobody of %d users comes before you.", me.Account, all)
	}
	v.Place = append(v.Place, text)
}
