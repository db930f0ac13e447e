package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// found.go asks gdbd what has become of the jobs that have not ended in the snapshot.

const (
	// before the snapshot's moment: it says when it was saved, and a kept one when its file was written
	foundMargin = time.Hour
	// foundPatience bounds reading what gdbd has of the time since the snapshot.
	foundPatience = 2 * time.Minute
)

// found gives what a gdbd has of attempts of jobs that have not ended by the facts, by job and attempt. Earlier
// attempts than the facts' are left out.
func (o *Options) found(ctx context.Context, v *state.View, saved model.Time) (out []state.FoundRun, err error) {
	for _, addr := range []string{o.DbdAddr, o.DbdCopy} {
		if addr == "" {
			continue
		}
		var e error
		if out, e = o.foundAt(ctx, addr, v, saved); e == nil {
			return out, nil
		}
		err = errors.Join(err, e)
	}
	return nil, err
}

func (o *Options) foundAt(ctx context.Context, addr string, v *state.View, saved model.Time) ([]state.FoundRun, error) {
	dialing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := o.dialDbd(dialing, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Close() }() // the answer is there, or an error
	body, err := proto.Encode(&proto.AcctRequest{Start: max(1, saved-model.Time(foundMargin.Milliseconds())),
		Duplicates: true})
	if err != nil {
		return nil, err
	}
	type key struct {
		job     model.JobID
		attempt uint32
	}
	sizes, runs := map[key]uint32{}, map[key]state.FoundRun{}
	ctx, stop := context.WithTimeout(ctx, foundPatience)
	defer stop()
	err = m.Stream(ctx, proto.KindQuery, body, func(f *rpc.Frame) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(f.Body, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			j, array := v.Job(r.Job), model.JobID(0)
			if r.ArrayID != 0 && r.TaskText == "" && (j == nil || j.IsArray()) {
				if j, array = v.TaskRecord(r.ArrayID, r.Task), r.ArrayID; j != nil && !j.IsArray() {
					continue // the snapshot has the task with another number
				}
			}
			if r.Cluster != o.Cluster || j == nil || j.State.Finished() || r.Attempt < j.Attempt || r.Submit != j.Submit {
				continue // the time of its submission tells it from a job of an earlier history
			}
			k := key{r.Job, r.Attempt}
			if r.Size < sizes[k] {
				continue // the run went on with other nodes
			}
			sizes[k] = r.Size
			one := state.FoundRun{Job: r.Job, Attempt: r.Attempt, Restarts: r.Restarts, State: r.State, Reason: r.Reason,
				Start: r.Start, End: r.End, Exit: r.Exit, UID: r.CancelUID, Array: array, Task: r.Task,
				Unbegun: r.Unbegun}
			if one.Exit.Text == "" {
				one.Exit.Text = r.Why
			}
			runs[k] = one
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]state.FoundRun, 0, len(runs))
	for _, r := range runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b state.FoundRun) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
	})
	return out, nil
}
