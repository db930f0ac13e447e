package jobtext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// resvTRES gives a reservation's resources in Slurm's words.
func resvTRES(v *model.Reservation, size *proto.ResvSize) string {
	out := []string{fmt.Sprintf("cpu=%d", size.CPUs)}
	for _, g := range size.Gres {
		if g.Count > 0 {
			out = append(out, fmt.Sprintf("%s=%d", g.TRES, g.Count))
		}
	}
	return strings.Join(out, ",") + licenseTRES(v.Licenses)
}

// notBilled, as a number of billing units, leaves them out.
const notBilled = -1

// tres builds Slurm's resource list. A typed resource is counted under its name and under its type.
func tres(cpus, memMiB, nodes int64, gres []model.GresCount, bill int64) string {
	b := fmt.Sprintf("cpu=%d", cpus)
	if memMiB > 0 {
		b += ",mem=" + walltime.FormatMem(memMiB)
	}
	b += fmt.Sprintf(",node=%d", nodes)
	if bill != notBilled {
		b += fmt.Sprintf(",billing=%d", bill)
	}
	var names []string
	sum := map[string]int64{}
	for _, g := range gres {
		if sum[g.Name] == 0 {
			names = append(names, g.Name)
		}
		sum[g.Name] += g.Count
	}
	for _, n := range names {
		b += fmt.Sprintf(",gres/%s=%d", n, sum[n])
		for _, g := range gres {
			if g.Name == n && g.Type != "" {
				b += fmt.Sprintf(",gres/%s:%s=%d", n, g.Type, g.Count)
			}
		}
	}
	return b
}

// gresIndexText gives gpu:a100:2(IDX:0-1).
func gresIndexText(list []model.GresAlloc) string {
	var out []string
	for _, g := range list {
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		idx := g.Index.String()
		if g.Share != nil {
			idx = strconv.Itoa(int(g.Share.GPU)) // of the GPU that they are shares of
		}
		out = append(out, fmt.Sprintf("%s:%d(IDX:%s)", s, g.Index.Count(), idx))
	}
	return strings.Join(out, ",")
}

func gresReqText(g model.GresReq) string {
	s := "gres/" + g.Name
	if g.Milli > 0 {
		s = "gres/" + model.GPUName
	}
	if g.Type != "" {
		s += ":" + g.Type
	}
	if g.Milli > 0 {
		return s + ":" + ask.PartText(g.Milli)
	}
	return s + ":" + strconv.Itoa(int(g.Count))
}

func gresTexts(list []model.GresReq) []string {
	var out []string
	for _, g := range list {
		out = append(out, gresReqText(g))
	}
	return out
}

// tresPer gives what a job asks for per node, job or task: cpu=4 and gres/gpu:a100:2. GPUs of sockets are told apart.
func tresPer(sp *model.Spec, per model.GresPer) []string {
	var out []string
	if per == model.PerTask && sp.CPUsPerTask > 0 {
		out = append(out, fmt.Sprintf("cpu=%d", sp.CPUsPerTask))
	}
	for _, g := range sp.AskedGres() {
		if g.Per == per && (g.Name != model.GPUName || len(sp.Extra().GPUsPerSocket) == 0) {
			out = append(out, gresReqText(g))
		}
	}
	return out
}

func nodeTres(cpus, mem int64, gres []model.GresCount) string {
	return strings.Replace(tres(cpus, mem, 1, gres, cpus), ",node=1", "", 1)
}

// gresDefText gives a node's generic resources: gpu:a100:8.
func gresDefText(list []model.GresDef) string {
	var out []string
	for _, g := range list {
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		if g.NoConsume {
			s += ":no_consume"
		}
		out = append(out, fmt.Sprintf("%s:%d", s, g.Count))
	}
	return strings.Join(out, ",")
}

// gresUsedText gives the units in use: gpu:a100:3(IDX:0-2).
func gresUsedText(n *model.Node) string {
	var out []string
	for _, g := range n.Def.Gres {
		if g.NoConsume {
			out = append(out, model.TypedName(g.Name, g.Type)+":0")
			continue
		}
		used := n.Used(g.Name)
		mine := used.Minus(model.UpTo(int(g.First)))
		mine = mine.And(model.UpTo(int(g.First + g.Count)))
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		if len(g.Over) > 0 {
			out = append(out, fmt.Sprintf("%s:%d(%s)", s, mine.Count(), shareUse(n, &g)))
			continue
		}
		idx := mine.String()
		if idx == "" {
			idx = "N/A"
		}
		out = append(out, fmt.Sprintf("%s:%d(IDX:%s)", s, mine.Count(), idx))
	}
	return strings.Join(out, ",")
}

// shareUse gives each GPU's shares in use, as Slurm shows them: 2/8,0/8.
func shareUse(n *model.Node, g *model.GresDef) string {
	var out []string
	for _, s := range g.Over {
		used := int32(0)
		if x := n.SharesOf(s.GPU); x != nil && x.Name == g.Name {
			used = x.Count
		}
		out = append(out, fmt.Sprintf("%d/%d", used, s.Count))
	}
	return strings.Join(out, ",")
}

// StepGres writes what a step has of generic resources.
func StepGres(s *model.Step) string {
	var out []string
	for _, g := range s.Gres {
		out = append(out, model.GresTRES(g.Name, g.Type)+":"+strconv.FormatInt(g.Count, 10))
	}
	return cmp.Or(strings.Join(out, ","), "N/A")
}

// stepTRES writes a step's resources, without billing.
func stepTRES(s *model.Step) string {
	return tres(int64(s.CPUs), s.MemMiB, int64(len(s.Nodes)), s.Gres, notBilled)
}

// licensesText gives a job's licenses as gqueue and gcontrol show them.
func licensesText(sp *model.Spec) string {
	if sp.More == nil {
		return ""
	}
	return ask.LicensesText(sp.More.Licenses, sp.More.AnyLicense)
}

// licensesHeld gives the licenses of a running job.
func licensesHeld(j *model.Job) string {
	if j.Run == nil {
		return ""
	}
	return ask.LicensesText(j.Run.Licenses, false)
}

// licenseTRES gives licenses as they stand behind other resources: ,license/matlab=2.
func licenseTRES(list []model.LicenseCount) string {
	text := ""
	for _, l := range list {
		text += fmt.Sprintf(",%s=%d", model.LicenseTRES(l.Name), l.Count)
	}
	return text
}

// amounts are a row's resources; a negative number of billing units: it is not billed.
type amounts struct {
	cpus, memMiB, nodes int64
	gres                []model.GresCount
	bill                int64
	licenses            []model.LicenseCount
}

// list gives them in sacct's order, which is the alphabet's.
func (a *amounts) list() []model.TRESCount {
	list := []model.TRESCount{{TRES: "cpu", Count: a.cpus}, {TRES: "node", Count: a.nodes}}
	if a.bill != notBilled {
		list = model.AddTRES(list, "billing", a.bill)
	}
	if a.memMiB > 0 {
		list = model.AddTRES(list, "mem", a.memMiB)
	}
	for _, g := range a.gres {
		list = model.AddTRES(list, model.GresTRES(g.Name, ""), g.Count)
		if g.Type != "" {
			list = model.AddTRES(list, model.GresTRES(g.Name, g.Type), g.Count)
		}
	}
	for _, l := range a.licenses {
		list = model.AddTRES(list, model.LicenseTRES(l.Name), l.Count)
	}
	return list
}

// tresText writes resources as sacct does.
func (r *RecordRow) tresText(a *amounts) string {
	if a == nil {
		return ""
	}
	var out []byte
	for i, e := range a.list() {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, e.TRES...), '=')
		if e.TRES == "mem" {
			out = append(out, r.mem(e.Count)...)
		} else {
			out = strconv.AppendInt(out, e.Count, 10)
		}
	}
	return string(out)
}

// writeTRES writes resources by their numbers. Where those are not known, resources have none but Slurm's own.
func (r *RecordRow) writeTRES(j *slurmjson.Writer, name string, a *amounts) {
	j.Open(name, '[')
	if a != nil {
		list, tracked := a.list(), r.tracked()
		number := func(x model.TRESCount) int64 { return model.TRESNumber(tracked, x.TRES) }
		place := func(x model.TRESCount) uint64 { return uint64(number(x)) - 1 } // 0, which is none, comes last
		slices.SortStableFunc(list, func(x, y model.TRESCount) int { return cmp.Compare(place(x), place(y)) })
		for _, x := range list {
			typ, sub, _ := strings.Cut(x.TRES, "/")
			j.TRES(typ, sub, x.Count, number(x))
		}
	}
	j.Close(']')
}

// tracked lists the resources that the cluster counts, as far as it is known.
func (r *RecordRow) tracked() []string {
	if r.TRES == nil {
		return (&model.Config{}).TRES()
	}
	return r.TRES
}

// wanted gives what the job asked for.
func (r *RecordRow) wanted() *amounts {
	nodes, mem, bill := r.asked()
	return &amounts{r.reqCPUs(), mem, nodes, r.ReqGres, bill, r.asks().Licenses}
}

// allocated gives what the job held; nil: nothing.
func (r *RecordRow) allocated() *amounts {
	if r.AllocCPUs == 0 {
		return nil
	}
	gres := r.AllocGres
	if r.Batch && r.OfStep == nil && r.NumNodes > 1 {
		gres = slices.Clone(gres)
		for i := range gres {
			gres[i].Count = r.perNode(gres[i].Count)
		}
	}
	return &amounts{r.cpus(), r.perNode(r.AllocMemMiB), r.nodes(), gres, r.billed(), r.held()}
}

func (r *RecordRow) reqTRES() string   { return r.tresText(r.wanted()) }
func (r *RecordRow) allocTRES() string { return r.tresText(r.allocated()) }
