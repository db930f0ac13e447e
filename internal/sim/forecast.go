package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// A forecast runs a live cluster's queue forward. It assumes that no more jobs come, that every job runs for its whole
// time limit, and that nodes stay as they are. Jobs suspended for others resume when those have ended; jobs that an
// operator has suspended don't. A forecast start is the scheduler's decision under these assumptions.

// Expected is when a job starts, or 0 and why it doesn't.
type Expected struct {
	Start model.Time
	Why   string
}

// Limits of a forecast.
const (
	maxForecastPasses = 1_000_000
	maxForecastJobs   = 1_000_000
)

// forecastKey is a job, or one task of an array.
type forecastKey struct {
	job  model.JobID
	task int32
}

// Forecast is the result for the queue.
type Forecast struct {
	Now    model.Time
	Starts map[forecastKey]Expected
	Idle   model.Time // when the last job had ended; 0: some never ends
}

// RunForward runs a state's queue to its end with a planner. st is used up.
func RunForward(ctx context.Context, st *state.State, now model.Time, plan Planner) (*Forecast, error) {
	f := &forward{Forecast: &Forecast{Now: now, Starts: map[forecastKey]Expected{}}, st: st, now: now, plan: plan,
		seen: map[model.JobID]bool{}, cut: newInterruptions(st.View().Config())}
	f.running()
	for passes := 0; ; passes++ {
		if passes >= maxForecastPasses {
			return nil, fmt.Errorf("the queue is not empty after %d planning passes: look at a part of the cluster, or at a "+
				"shorter queue", passes)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		started, err := f.pass()
		if err != nil {
			return nil, err
		}
		if !started && !f.step() {
			break
		}
	}
	f.leftOver()
	if !f.forever {
		f.Idle = f.now
	}
	return f.Forecast, nil
}

// forward is a forecast in progress.
type forward struct {
	*Forecast
	st      *state.State
	now     model.Time
	plan    Planner
	ends    endHeap // of milliseconds
	seq     int64
	forever bool
	seen    map[model.JobID]bool
	cut     interruptions
}

// running records the ends of the jobs with resources. A job that is past its limit, or ending already, ends now.
func (f *forward) running() {
	f.st.View().Jobs(func(j *model.Job) bool {
		if j.Run == nil || !j.State.HasResources() || f.seen[j.ID] {
			return true
		}
		f.seen[j.ID] = true
		at := j.Run.Deadline()
		if j.Run.Idles() && j.Run.LimitS < model.Unlimited {
			left := 1000 * max(1, j.Run.LimitS-j.ElapsedS(j.Run.SleepAt))
			switch j.Run.Sleep {
			case model.SleepsForRoom:
				f.seq++
				f.cut.asleep[j.ID] = ending{at: left, seq: f.seq, id: j.ID, attempt: j.Attempt, since: int64(f.now)}
				return true
			case model.SleepsInTurn: // time slices are not simulated
				at = f.now + model.Time(left)
			}
		}
		switch {
		case j.State == model.Completing:
			at = f.now
		case at == 0:
			f.forever = true
			return true
		}
		f.seq++
		f.ends.push(ending{at: int64(max(at, f.now)), seq: f.seq, id: j.ID, attempt: j.Attempt})
		return true
	})
}

// pass plans once, applies the plan and records the started jobs.
func (f *forward) pass() (bool, error) {
	plan := f.plan.Plan(f.st.View(), f.now)
	if plan.Empty() {
		return false, nil
	}
	res := f.st.Apply(state.Command{At: f.now, Body: &state.Starts{Epoch: 1, Plan: plan}})
	v := f.st.View()
	any, begun := false, []state.Report(nil)
	for i := range plan.Starts {
		s := &plan.Starts[i]
		if res.Each[i] != state.OK {
			return false, fmt.Errorf("the state refuses to start job %d (%s): the scheduler and the state disagree", s.Job,
				res.Each[i])
		}
		any = true
		j := v.Job(s.Job)
		k := forecastKey{s.Job, model.NoTask}
		if s.Task != model.NoTask {
			j = v.Task(s.Job, s.Task)
			k = forecastKey{s.Job, s.Task}
		} else if j != nil && j.ArrayID != 0 {
			k = forecastKey{j.ArrayID, j.Task}
		}
		if j == nil || len(f.Starts) >= maxForecastJobs {
			return false, fmt.Errorf("more than %d jobs would start: look at a shorter queue", maxForecastJobs)
		}
		if _, again := f.Starts[k]; !again {
			f.Starts[k] = Expected{Start: f.now}
		}
		f.seen[j.ID] = true
		if at := j.Run.Deadline(); at != 0 {
			f.seq++
			f.ends.push(ending{at: int64(at), seq: f.seq, id: j.ID, attempt: j.Attempt})
		} else {
			f.forever = true
		}
		begun = append(begun, state.Report{Kind: state.Started, Job: j.ID, Attempt: j.Attempt, At: f.now})
	}
	if f.cut.may && len(begun) > 0 { // a job without processes can't be suspended
		f.st.Apply(state.Command{At: f.now, Body: &state.Reports{Reports: begun}})
	}
	room := f.cut.carryOut(&f.ends, f.st.View(), &plan, int64(f.now), 1000, func(*ending, int64) {})
	return any || room, nil
}

// step advances to the next event: the end of jobs or a begin time; false if there is none.
func (f *forward) step() bool {
	next := int64(0)
	if f.ends.len() > 0 {
		next = f.ends.min().at
	}
	if due := f.due(); due != 0 && (next == 0 || int64(due) < next) {
		next = int64(due)
	}
	if next == 0 {
		return false
	}
	f.now = max(f.now, model.Time(next))
	var gone []state.Report
	for f.ends.len() > 0 && f.ends.min().at <= int64(f.now) {
		e := f.ends.pop()
		gone = append(gone, f.st.View().EndOf(e.id, e.attempt, f.now)...)
	}
	if len(gone) > 0 {
		f.st.Apply(state.Command{At: f.now, Body: &state.Reports{Reports: gone}})
		f.st.Apply(state.Command{At: f.now, Body: &state.Trim{Seq: 1<<64 - 1}})
	}
	f.st.Apply(state.Command{At: f.now, Body: &state.Tick{}})
	return true
}

// due gives the next begin time of a pending job; other timed events don't start jobs.
func (f *forward) due() model.Time {
	next := model.Time(0)
	v := f.st.View()
	if v.Pending() == 0 {
		return 0
	}
	v.Jobs(func(j *model.Job) bool {
		if j.State == model.Pending && j.Begin > f.now && j.Hold == model.NotHeld && (next == 0 || j.Begin < next) {
			next = j.Begin
		}
		return true
	})
	return next
}

// leftOver records why the remaining jobs never start.
func (f *forward) leftOver() {
	f.st.View().Jobs(func(j *model.Job) bool {
		if j.State != model.Pending {
			return true
		}
		k := forecastKey{j.ID, model.NoTask}
		if j.ArrayID != 0 {
			k = forecastKey{j.ArrayID, j.Task}
		}
		if _, begun := f.Starts[k]; !begun {
			f.Starts[k] = Expected{Why: j.Reason.String()}
		}
		return true
	})
}

// forecast is `gbatch sim --from-state`.
func forecast(ctx context.Context, o *Options) error {
	now, before, err := o.runState(ctx, nil, "", o.baseScheduler())
	if err != nil {
		return err
	}
	label, other := "", (*Forecast)(nil)
	if len(o.WhatIf) > 0 || o.Conf != "" || o.Scheduler != "" {
		changes, scheduler, err := parseWhatIf(o.WhatIf)
		if err != nil {
			return err
		}
		if scheduler == "" {
			scheduler = o.Scheduler
		}
		if _, other, err = o.runState(ctx, changes, o.Conf, scheduler); err != nil {
			return err
		}
		label = "what if"
	}
	return o.showForecast(now, before, other, label)
}

func (o *Options) baseScheduler() string { return "" }

// runState reads the dump, applies the changes, and runs it forward.
func (o *Options) runState(ctx context.Context, changes []whatIf, confPath, scheduler string) (*state.View, *Forecast,
	error) {
	file, err := os.Open(o.FromState)
	if err != nil {
		return nil, nil, fmt.Errorf("open the dump: %w", err)
	}
	defer file.Close()
	r, err := plain(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", o.FromState, err)
	}
	st, now, err := state.ReadDump(r)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", o.FromState, err)
	}
	v := st.View()
	if confPath != "" {
		m, _, err := FromConf(confPath)
		if err != nil {
			return nil, nil, err
		}
		m.Config.Params.MaxJobs = v.Config().Params.MaxJobs
		replaceConfig(st, now, m.Config)
	}
	for _, c := range changes {
		if err := c.apply(st, now); err != nil {
			return nil, nil, err
		}
	}
	if scheduler == "" {
		scheduler = Configured
	}
	s, err := NewScheduler(scheduler, &Machine{Config: st.View().Config()})
	if err != nil {
		return nil, nil, err
	}
	f, err := RunForward(ctx, st, now, s.New())
	return v, f, err
}

// forecastLine is one job of the answer.
type forecastLine struct {
	Job       string  `json:"job"`
	User      string  `json:"user"`
	Partition string  `json:"partition"`
	Start     *int64  `json:"expected_start"`           // Unix seconds; null: never
	Why       string  `json:"why,omitempty"`            // it never starts
	WhatIf    *int64  `json:"what_if_start,omitempty"`  // Unix seconds
	WhyIf     string  `json:"what_if_why,omitempty"`    // it never starts
	Sooner    float64 `json:"sooner_hours,omitempty"`   // negative: later
	Compared  bool    `json:"in_both_worlds,omitempty"` // it starts in both
}

// forecastKeys are the jobs of both forecasts in the order of their starts.
func forecastKeys(before, other *Forecast) []forecastKey {
	var keys []forecastKey
	for k := range before.Starts {
		keys = append(keys, k)
	}
	if other != nil {
		for k := range other.Starts {
			if _, ok := before.Starts[k]; !ok {
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, func(a, b forecastKey) int {
		x, y := before.Starts[a].Start, before.Starts[b].Start
		if (x == 0) != (y == 0) {
			return cmp.Compare(y, x)
		}
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.job, b.job), cmp.Compare(a.task, b.task))
	})
	return keys
}

// forecastLines compares two forecasts; n jobs start in both, in total sum hours sooner in the other.
func forecastLines(v *state.View, before, other *Forecast) (lines []forecastLine, sum float64, n int) {
	lines = []forecastLine{}
	for _, k := range forecastKeys(before, other) {
		j := v.Job(k.job)
		if k.task != model.NoTask {
			if t := v.TaskRecord(k.job, k.task); t != nil {
				j = t
			}
		}
		l := forecastLine{Job: fmt.Sprint(k.job)}
		if k.task != model.NoTask {
			l.Job = fmt.Sprintf("%d_%d", k.job, k.task)
		}
		if j != nil {
			l.User, l.Partition = j.Spec.User, j.Partition()
		}
		e := before.Starts[k]
		l.Start, l.Why = seconds(e.Start), e.Why
		if other != nil {
			w, there := other.Starts[k]
			if !there {
				w.Why = "removed"
			}
			l.WhatIf, l.WhyIf = seconds(w.Start), w.Why
			if e.Start != 0 && w.Start != 0 {
				l.Compared, l.Sooner = true, float64(e.Start-w.Start)/3600e3
				sum += l.Sooner
				n++
			}
		}
		lines = append(lines, l)
	}
	return lines, sum, n
}

func (o *Options) showForecast(v *state.View, before, other *Forecast, label string) error {
	lines, sum, n := forecastLines(v, before, other)
	mean := 0.0
	if n > 0 {
		mean = sum / float64(n)
	}
	if o.JSON {
		enc := json.NewEncoder(o.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Now   int64          `json:"now"`
			Jobs  []forecastLine `json:"jobs"`
			Mean  float64        `json:"mean_sooner_hours"`
			Empty *int64         `json:"idle_at"`
		}{before.Now.Seconds(), lines, mean, seconds(before.Idle)})
	}
	zone := time.Unix(before.Now.Seconds(), 0)
	at := func(s *int64, why string) string {
		if s == nil {
			return "never (" + why + ")"
		}
		return walltime.Timestamp(time.Unix(*s, 0), zone, "")
	}
	fmt.Fprintf(o.Out, "The queue of %s as of %s, run forward: no more jobs come, each runs for all of "+
		"its time limit.\n\n", v.Config().Cluster, walltime.Timestamp(zone, zone, ""))
	if len(lines) == 0 {
		fmt.Fprintln(o.Out, "No job waits.")
		return nil
	}
	t := tabwriter.NewWriter(o.Out, 0, 8, 3, ' ', 0)
	if other == nil {
		fmt.Fprintln(t, "JOB\tUSER\tPARTITION\tSTARTS")
	} else {
		fmt.Fprintln(t, "JOB\tUSER\tPARTITION\tSTARTS\tWHAT IF\tCHANGE")
	}
	for _, l := range lines {
		row := l.Job + "\t" + l.User + "\t" + l.Partition + "\t" + at(l.Start, l.Why)
		if other != nil {
			row += "\t" + at(l.WhatIf, l.WhyIf) + "\t" + soonerText(&l)
		}
		fmt.Fprintln(t, row)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if other != nil {
		word := "sooner"
		if mean < 0 {
			word = "later"
		}
		fmt.Fprintf(o.Out, "\n%s: %d jobs start in both, on average %s %s\n", label, n, span(max(mean, -mean)*3600), word)
	}
	return nil
}

func soonerText(l *forecastLine) string {
	switch {
	case !l.Compared && l.Start == nil && l.WhatIf != nil:
		return "can start"
	case !l.Compared:
		return ""
	case l.Sooner > 0:
		return span(l.Sooner*3600) + " sooner"
	case l.Sooner < 0:
		return span(-l.Sooner*3600) + " later"
	}
	return "="
}

func seconds(t model.Time) *int64 {
	if t == 0 {
		return nil
	}
	s := t.Seconds()
	return &s
}
