package model

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/wire"
)

// TRESCount is an amount of one trackable resource: CPUs, MiB, nodes, or units of a generic resource.
type TRESCount struct {
	TRES  string
	Count int64
}

func (x *TRESCount) Wire(c *wire.C) {
	wire.Text(c, &x.TRES, MaxName)
	wire.Int(c, &x.Count)
}

// TRESWeight is the weight of a resource: Micros/1e6 for every Per units. Units are one CPU, one MiB of memory, one GPU
// and so on; "Mem=0.25G" is 250000 micros per 1024 MiB.
type TRESWeight struct {
	TRES   string
	Micros int64
	Per    int64
}

func (x *TRESWeight) Wire(c *wire.C) {
	wire.Text(c, &x.TRES, MaxName)
	wire.Int(c, &x.Micros)
	wire.Int(c, &x.Per)
}

// TRES gives the allocation's resources in order of name: cpu, gres/NAME and, for typed units, gres/NAME:TYPE, then mem
// (MiB) and node.
func (a *Alloc) TRES() []TRESCount {
	cpus, mem, gres := a.Totals()
	out := append(make([]TRESCount, 0, 3+2*len(gres)), TRESCount{"cpu", int64(cpus)})
	for _, g := range gres {
		out = AddTRES(out, GresTRES(g.Name, ""), g.Count)
		if g.Type != "" {
			out = AddTRES(out, GresTRES(g.Name, g.Type), g.Count)
		}
	}
	out = AddTRES(out, "mem", mem)
	if a != nil {
		out = AddTRES(out, "node", int64(len(a.Nodes)))
	}
	return out
}

// What the names of resources that have names of their own begin with.
const (
	gresTRES    = "gres/"
	licenseTRES = "license/"
)

// TRES lists the resources that the cluster counts: the ones that Slurm always counts, AccountingStorageTRES, the
// generic resources of nodes with their types, and licenses.
func (x *Config) TRES() []string {
	out := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	add := func(t string) {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	for _, t := range x.Params.TrackTRES {
		add(t)
	}
	for _, n := range x.Nodes {
		for _, g := range n.Gres {
			add(GresTRES(g.Name, ""))
			if g.Type != "" {
				add(GresTRES(g.Name, g.Type))
			}
		}
	}
	for _, l := range x.Licenses {
		add(LicenseTRES(l.Name))
	}
	return out
}

// TRESNumber gives a resource's number among those that the cluster counts: 1 to 8 are Slurm's own, the others begin at
// 1001. 0 for one that is unknown.
func TRESNumber(list []string, tres string) int64 {
	const fixed, first = 8, 1001
	switch i := int64(slices.Index(list, tres)); {
	case i < 0:
		return 0
	case i < fixed:
		return i + 1
	default:
		return first + i - fixed
	}
}

// GresTRES names a generic resource among the resources that are counted: gres/gpu or, with a type, gres/gpu:a100.
func GresTRES(name, typ string) string { return gresTRES + TypedName(name, typ) }

// LicenseTRES names a license among them: license/matlab.
func LicenseTRES(name string) string { return licenseTRES + name }

// TRESGres gives the name and the type of a generic resource that GresTRES has named.
func TRESGres(tres string) (name, typ string, is bool) {
	rest, is := strings.CutPrefix(tres, gresTRES)
	if !is {
		return "", "", false
	}
	name, typ, _ = strings.Cut(rest, ":")
	return name, typ, true
}

// TRESLicense gives the name of a license that LicenseTRES has named.
func TRESLicense(tres string) (name string, is bool) {
	if name, is = strings.CutPrefix(tres, licenseTRES); !is {
		return "", false
	}
	return name, true
}

// AddTRES adds n to one resource of a list in order of name. The list may be changed in place.
func AddTRES(list []TRESCount, tres string, n int64) []TRESCount {
	i, found := slices.BinarySearchFunc(list, tres, func(c TRESCount, t string) int { return strings.Compare(c.TRES, t) })
	if found {
		list[i].Count += n
		return list
	}
	return slices.Insert(list, i, TRESCount{tres, n})
}

// Text writes an amount as Slurm does: cpu=8, mem=100M.
func (x TRESCount) Text() string {
	text := x.TRES + "=" + strconv.FormatInt(x.Count, 10)
	if x.TRES == "mem" {
		text += "M"
	}
	return text
}

// CountTRES gives one resource's amount in a list; 0 if it is not in the list.
func CountTRES(list []TRESCount, tres string) int64 {
	for i := range list {
		if list[i].TRES == tres {
			return list[i].Count
		}
	}
	return 0
}

// BillMicros gives the billing of resources (TRESBillingWeights), in millionths of a billing unit. It is the sum of the
// weighted resources. With MAX_TRES it is the largest weighted resource of nodes plus the sum of the others; with
// MAX_TRES_GRES generic resources belong to the others. Without weights it is the number of CPUs.
func BillMicros(have []TRESCount, weights []TRESWeight, flags PrioFlags) int64 {
	if len(weights) == 0 {
		return CountTRES(have, "cpu") * FactorOne
	}
	var sum, top int64
	for _, w := range weights {
		n := Scale(CountTRES(have, w.TRES), w.Micros, max(w.Per, 1))
		_, _, gres := TRESGres(w.TRES)
		if _, license := TRESLicense(w.TRES); !license && (flags&PrioMaxTRES != 0 || flags&PrioMaxTRESGres != 0 && !gres) {
			top = max(top, n)
			continue
		}
		sum += n
	}
	return max(sum+top, 0)
}

// Scale gives n*num/den rounded towards zero, without overflow in between; a result that doesn't fit becomes the
// largest number. den is above 0.
func Scale(n, num, den int64) int64 {
	neg := (n < 0) != (num < 0)
	hi, lo := bits.Mul64(magnitude(n), magnitude(num))
	if hi >= uint64(den) {
		hi, lo = 0, 1<<63-1
	} else {
		lo, _ = bits.Div64(hi, lo, uint64(den))
		lo = min(lo, 1<<63-1)
	}
	if neg {
		return -int64(lo)
	}
	return int64(lo)
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// AddNodeTRES adds a node's resources to a list in order of name.
func AddNodeTRES(have []TRESCount, d *NodeDef) []TRESCount {
	have = AddTRES(have, "cpu", int64(d.CPUs))
	have = AddTRES(have, "mem", d.MemMiB)
	have = AddTRES(have, "node", 1)
	for _, g := range d.Gres {
		have = AddTRES(have, GresTRES(g.Name, ""), int64(g.Count))
		if g.Type != "" {
			have = AddTRES(have, GresTRES(g.Name, g.Type), int64(g.Count))
		}
	}
	return have
}
