package multifactor

import "math"

// classic replaces the factors by those of the formula before Fair Tree (PriorityFlags=NO_FAIR_TREE,
// https://slurm.schedmd.com/classic_fair_share.html): F = 2^(-UE/S), where S is a user's part of the whole and the
// effective usage UE of a line is its own usage plus its share of the rest of its parent's effective usage,
//
//	UE = U + (UE_parent - U)·shares/shares of itself and its siblings
//
// and, at the first level below the root, simply U.
//
// With PriorityFlags=DEPTH_OBLIVIOUS (https://slurm.schedmd.com/priority_multifactor3.html) it is F = 2^(-R) with
//
//	R = R_parent·rl^k,  rl = (U/S)/(U of siblings/S of siblings),
//	k = 1 if ln(R_parent)·ln(rl) >= 0, else 1/(1 + (5·ln R_parent)²)
//
// Lines with their parent's shares have their parent's factor.
func (t *Tree) classic(oblivious bool) {
	n := len(t.Rows)
	part, eff, ratio := make([]float64, n), make([]float64, n), make([]float64, n)
	level := make([]float64, n) // shares among siblings; Level.Shares becomes the part of the whole
	for i := range t.Rows {
		r := &t.Rows[i]
		level[i] = r.Level.Shares
		if i == 0 {
			part[0], eff[0], ratio[0] = 1, r.NormUsage, 1
			continue
		}
		p := r.up
		for p > 0 && t.Rows[p].UseParent {
			p = t.Rows[p].up
		}
		if r.UseParent {
			part[i], eff[i], ratio[i] = part[p], eff[p], ratio[p]
		} else {
			part[i] = part[p] * level[i]
			if eff[i] = r.NormUsage; p > 0 {
				eff[i] += (eff[p] - r.NormUsage) * level[i]
			}
			ratio[i] = t.oblivious(i, p, part, ratio)
		}
		r.Level.Shares, r.Used = part[i], eff[i]
		if r.User == "" {
			continue
		}
		switch {
		case oblivious:
			r.Factor = math.Exp2(-ratio[i])
		case part[i] > 0:
			r.Factor = math.Exp2(-eff[i] / part[i])
		default:
			r.Factor = 0
		}
	}
}

// oblivious gives R of line i below p.
func (t *Tree) oblivious(i, p int, part, ratio []float64) float64 {
	u, s := t.Rows[i].NormUsage, part[i]
	all, due := t.Rows[p].NormUsage, part[p] // of line i and its siblings
	switch {
	case s <= 0:
		return math.Inf(1)
	case u <= 0 || all <= 0:
		return 0
	}
	rl := (u / s) / (all / due)
	if p == 0 {
		return u / s
	}
	if ratio[p] <= 0 {
		return 0
	}
	lp, ll := math.Log(ratio[p]), math.Log(rl)
	k := 1.0
	if lp*ll < 0 {
		k = 1 / (1 + 25*lp*lp)
	}
	return ratio[p] * math.Pow(rl, k)
}
