package sim

import (
	"math"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/sched"
)

// sized is what published orders look at. Times are seconds.
type sized struct {
	wait, requested, procs, submit float64
}

// wfp3 is Wait-Fair-Processors. Source: Tang, Lan, Desai, Buettner: Fault-aware, utility-based job scheduling on Blue
// Gene/P systems, CLUSTER 2009.
func wfp3(j sized) float64 {
	r := j.wait / j.requested
	return r * r * r * j.procs
}

// unicef favours small jobs that wait. Source: as wfp3; the published marks count one processor as two, whose logarithm
// is not 0.
func unicef(j sized) float64 {
	return j.wait / (math.Log2(math.Max(j.procs, 2)) * j.requested)
}

// sjf is shortest job first, by request.
func sjf(j sized) float64 { return 1 / j.requested }

// saf is smallest area first, by request. Source: Carastan-Santos, de Camargo, Trystram, Zrigui: One can only gain by
// replacing EASY backfilling, CCGRID 2019.
func saf(j sized) float64 { return 1 / (j.requested * j.procs) }

// f1 is the first of the functions that regression found. Source: Carastan-Santos, de Camargo: Obtaining dynamic
// scheduling policies with simulation and machine learning, SC 2017.
func f1(j sized) float64 {
	return 1 / (1 + math.Log10(math.Max(j.requested, 1))*j.procs + 870*math.Log10(math.Max(j.submit, 1)))
}

// scoreOrder orders jobs by a score of the moment, highest first.
type scoreOrder struct {
	score  func(sized) float64
	params *model.Params // the machine's
	now    model.Time
	begun  model.Time // the first moment
	epoch  uint64
}

var _ sched.Order = (*scoreOrder)(nil)

// at moves the order to a moment.
func (o *scoreOrder) at(now model.Time) {
	if now == o.now {
		return
	}
	if o.begun == 0 {
		o.begun = now
	}
	o.now = now
	o.epoch++
}

// Epoch grows with the time.
func (o *scoreOrder) Epoch() uint64 { return o.epoch }

// Priority is the score's bits: those of floats that are not negative stand in the order of the floats.
func (o *scoreOrder) Priority(j *model.Job, part *model.Partition) uint64 {
	s := o.score(sized{wait: float64(o.now-j.Submit) / 1000, requested: float64(max(part.LimitS(j.Spec), 1)),
		procs: float64(procsOf(j.Spec, part, o.params)), submit: float64(j.Submit-o.begun) / 1000})
	return math.Float64bits(math.Max(s, 0))
}

// procsOf counts the processors that a job asks for in a partition, or its GPUs where those are more.
func procsOf(sp *model.Spec, part *model.Partition, params *model.Params) int64 {
	rules := ask.RulesOf(part, params)
	c := ask.Of(sp, &rules)
	size := c.Size()
	return max(int64(size.CPUs), c.UnitsOf(&size, model.GPUName, ""))
}
