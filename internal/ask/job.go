package ask

import "gbatch/internal/model"

// Rulebook finds the rules of a job in a list. The zero value has no rules: then only the jobs' own Specs count.
type Rulebook struct {
	by    map[ruleKey]*model.AskRules
	lifts bool // some rules are for jobs of one QOS
}

type ruleKey struct{ part, qos string }

// Add puts rules into the book.
func (b *Rulebook) Add(list []*model.AskRules) {
	if b.by == nil {
		b.by = map[ruleKey]*model.AskRules{}
	}
	for _, r := range list {
		b.by[ruleKey{r.Partition, r.QOS}] = r
		b.lifts = b.lifts || r.QOS != ""
	}
}

// Of gives the rules for a job: of the partition in which it runs, otherwise of its first partition. nil if they are
// not known.
func (b *Rulebook) Of(j *model.Job) *model.AskRules { return b.In(j.Partition(), j.Spec.QOS) }

// In gives the rules of a partition for jobs of a QOS.
func (b *Rulebook) In(part, qos string) *model.AskRules {
	if b == nil {
		return nil
	}
	if b.lifts && qos != "" {
		if r := b.by[ruleKey{part, qos}]; r != nil {
			return r
		}
	}
	return b.by[ruleKey{part, ""}]
}

// Job gives what a job holds or, while it is pending, asks for.
func Job(j *model.Job, rules *model.AskRules) Size {
	c := Of(j.Spec, rules)
	if j.Run == nil || j.Run.Alloc == nil {
		return c.Size()
	}
	cpus, mem, _ := j.Run.Alloc.Totals()
	n := len(j.Run.Alloc.Nodes)
	return Size{Nodes: n, Tasks: c.TasksOn(n), CPUs: cpus, MemMiB: mem}
}

// Demand is all that a job asks for.
type Demand struct {
	Size
	Gres     []model.GresCount
	Licenses []model.LicenseCount // those that it can't do without
	Bill     int64
}

// Asked gives what a job asks for, whether it waits or runs.
func Asked(sp *model.Spec, rules *model.AskRules) Demand {
	c := Of(sp, rules)
	size := c.Size()
	all, _ := c.Least()
	return Demand{size, c.GresOn(&size), c.Certain(), Bill(all, rules)}
}
