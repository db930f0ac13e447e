package acctmgr

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Plan is a command's plan: the edits, and the texts to show before they are made.
type Plan struct {
	Notes    []string // sentences about what is left out, and why; shown first
	Text     []string // what will happen
	Edits    []model.AcctEdit
	Nothing  string   // what to say when there are no edits
	NewUsers []string // users that get their first association: they should exist on the host
}

// Empty reports whether the command found nothing to do, which is said and no success. What is named without edits is
// as it was to be already.
func (p *Plan) Empty() bool { return len(p.Edits)+len(p.Text) == 0 && p.Nothing != "" }

// Limited names what has a limit of jobs after the plan, as "QOS x" and "account a": a limit of its own.
func (p *Plan) Limited() (names []string) {
	set := func(name string, limits []model.Limit, tres ...[]model.TRESLimit) {
		if slices.ContainsFunc(limits, func(l model.Limit) bool { return l > 0 }) ||
			slices.ContainsFunc(tres, func(l []model.TRESLimit) bool { return len(l) > 0 }) {
			names = append(names, name)
		}
	}
	for i := range p.Edits {
		if q := p.Edits[i].QOS; q != nil {
			set("QOS "+q.Name, []model.Limit{q.GrpJobs, q.GrpAccrue, q.GrpSubmit, q.GrpWallS, q.MaxWallS, q.MaxJobsPerUser,
				q.MaxAccruePerUser, q.MaxSubmitPerUser, q.MaxJobsPerAccount, q.MaxAccruePerAccount, q.MaxSubmitPerAccount},
				q.GrpTRES, q.GrpTRESMins, q.GrpTRESRunMins, q.MaxTRESPerJob, q.MaxTRESPerNode, q.MaxTRESMins, q.MinTRES,
				q.MaxTRESPerUser, q.MaxTRESRunMinsPerUser, q.MaxTRESPerAccount, q.MaxTRESRunMinsPerAcct)
		}
		if a := p.Edits[i].Assoc; a != nil {
			name := "account " + a.Account
			if a.OfPool() {
				name += " in partition " + a.Partition
			}
			if a.User != "" {
				name = "user " + a.User + " of " + name
			}
			set(name, []model.Limit{a.GrpJobs, a.GrpAccrue, a.GrpSubmit, a.GrpWallS, a.MaxJobs, a.MaxAccrue, a.MaxSubmit,
				a.MaxWallS}, a.GrpTRES, a.GrpTRESMins, a.GrpTRESRunMins, a.MaxTRESPerJob, a.MaxTRESPerNode, a.MaxTRESMins,
				a.MaxTRESRunMins)
		}
	}
	return names
}

func (p *Plan) note(format string, a ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, a...)) }

func (p *Plan) say(format string, a ...any) { p.Text = append(p.Text, fmt.Sprintf(format, a...)) }

func (p *Plan) edit(e model.AcctEdit) { p.Edits = append(p.Edits, e) }

func (p *Plan) putAssoc(a *model.Association) {
	p.edit(model.AcctEdit{Op: model.PutAssoc, Assoc: a})
}

// limited applies settings to an association. It refuses those that are not counted there.
func limited(f *Facts, a *model.Association, words []word) (said []string, err error) {
	if said, err = apply(f, assocAttrs(), a, words); err != nil {
		return nil, err
	}
	if text := a.UncountedText(); text != "" {
		return nil, fmt.Errorf(" %s", text)
	}
	return ordered(said), nil
}

// assocSaid are the settings of a new association in the order in which sacctmgr prints them.
var assocSaid = []string{"Fairshare", "GrpJobs", "GrpJobsAccrue", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins",
	"GrpTRESRunMins", "GrpWall", "MaxJobs", "MaxJobsAccrue", "MaxSubmitJobs", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins",
	"MaxTRESRunMins", "MaxWall", "Parent", "Priority", "QOS", "DefQOS"}

// ordered sorts lines about settings; those of which sacctmgr knows nothing come last.
func ordered(said []string) []string {
	rank := func(line string) int {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		if i := slices.Index(assocSaid, strings.TrimRight(name, " +-")); i >= 0 {
			return i
		}
		return len(assocSaid)
	}
	slices.SortStableFunc(said, func(a, b string) int { return rank(a) - rank(b) })
	return said
}

// changes applies settings to a record and gives their text.
func apply[T any](f *Facts, list []attr[T], t *T, words []word) (said []string, err error) {
	for _, w := range words {
		a := find(list, w.key)
		if a == nil {
			return nil, misplacedOption(list, w)
		}
		if err := a.set(f, t, w.op, w.value); err != nil {
			return nil, fmt.Errorf(" Bad value for %s: %w", a.label, err)
		}
		sign := "="
		if w.op != '=' {
			sign = string(w.op) + "="
		}
		label, value := a.label, w.value
		switch {
		case label == "DefaultQOS":
			label = "DefQOS"
		case strings.HasSuffix(label, "Wall") && sign == "=":
			value = or(a.get(t), value)
		}
		if len(label) < 14 {
			label += " "
		}
		said = append(said, fmt.Sprintf("  %-14s%s %s", label, sign, value))
	}
	return said, nil
}

// assocLine shows an association as sacctmgr does in its plans.
func (f *Facts) assocLine(a *model.Association) string {
	var b strings.Builder
	if a.User != "" {
		fmt.Fprintf(&b, "  U = %-9.9s", a.User)
		fmt.Fprintf(&b, " A = %-10.10s C = %-10.10s", a.Account, f.Cluster)
	} else {
		fmt.Fprintf(&b, "  A = %-10.10s C = %-10.10s", a.Account, f.Cluster)
	}
	if a.Partition != "" {
		fmt.Fprintf(&b, " P = %-5.5s", a.Partition)
	}
	return strings.TrimRight(b.String(), " ")
}

// whichLine shows an association that is changed or removed.
func (f *Facts) whichLine(a *model.Association) string {
	line := fmt.Sprintf("  C = %-10s A = %-20s", f.Cluster, a.Account)
	switch {
	case a.OfPool():
		line += " P = " + a.Partition
	case a.User == "" && f.parent(a.Account) != "":
		line = fmt.Sprintf("  C = %-10s A = %s of %s", f.Cluster, a.Account, f.parent(a.Account))
	case a.User != "" && a.Partition != "":
		line += fmt.Sprintf(" U = %-9s P = %s", a.User, a.Partition)
	case a.User != "":
		line += fmt.Sprintf(" U = %-9s", a.User)
	}
	return strings.TrimRight(line, " ")
}

// goneLine names an association that is removed, as sacctmgr does.
func (f *Facts) goneLine(a *model.Association) string {
	line := fmt.Sprintf("  C = %-10s A = %-10s", f.Cluster, a.Account)
	if a.User != "" {
		line += fmt.Sprintf(" U = %-9s", a.User)
	}
	if a.Partition != "" {
		line += " P = " + a.Partition
	}
	return strings.TrimRight(line, " ")
}

// checkCluster refuses another cluster than this one.
func (f *Facts) checkCluster(v string) error {
	for _, n := range names(v) {
		if n != strings.ToLower(f.Cluster) {
			return fmt.Errorf(" This cluster '%s' doesn't exist.\n"+
				"        Contact your admin to add it to accounting. (This cluster is %s)", n, f.Cluster)
		}
	}
	return nil
}
