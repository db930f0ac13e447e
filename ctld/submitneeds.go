package ctld

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// maxLimits bounds the resource limits of a job: the kernel has as many.
const maxLimits = 16

// chooseWCKey gives a job that names no wckey the default one of its user, marked as such, where usage is kept by
// wckeys. A wckey that is not among the user's is theirs from now on or, with AccountingStorageEnforce=wckeys, refused.
// Without TrackWCKey, the text is only kept.
func chooseWCKey(v *state.View, sp *model.Spec) (notes []string, err error) {
	p, name := &v.Config().Params, model.WCKeyName(sp.WCKey)
	if err := model.CheckWCKey(name); err != nil {
		return nil, refuse(proto.CodeInvalidWCKey, "%v", err)
	}
	switch sp.WCKey = strings.ToLower(sp.WCKey); {
	case name != "" || !p.TrackWCKey:
	case v.User(sp.User) != nil && v.User(sp.User).DefaultWCKey != "":
		name = v.User(sp.User).DefaultWCKey
		sp.WCKey = model.PresetMark + name
	default:
		sp.WCKey = model.PresetMark // of a user who has no default one
	}
	if !p.TrackWCKey || v.WCKey(sp.User, name) != nil {
		return nil, nil
	}
	switch own := v.WCKeysOf(sp.User); {
	case p.EnforceWCKeys && name == "":
		return nil, refuse(proto.CodeInvalidWCKey, "name one of yours with --wckey (gacctmgr show wckey user=%s): user "+
			"%[1]s has no default one", sp.User)
	case p.EnforceWCKeys:
		return nil, refuse(proto.CodeInvalidWCKey, "--wckey=%s: it is none of user %s; see gacctmgr show wckey user=%[2]s",
			name, sp.User)
	case name != "" && len(own) >= state.MaxWCKeys:
		notes = append(notes, fmt.Sprintf("user %s has named %d wckeys already: usage is not kept by %s", sp.User, len(own),
			name))
	}
	return notes, nil
}

// wckey is WCKey of an update; nothing is the user's default one.
func (ed *editing) wckey(kv model.KV) error {
	ed.sp.WCKey, ed.specChanged = kv.Value, true
	_, err := chooseWCKey(ed.v, ed.sp) // updates have no notes: WCKey is not shown if usage is not kept by it
	return err
}

// bounded refuses a job whose description is too large, or has numbers that no command sends: code that gets it takes
// them for good.
func bounded(sp *model.Spec) error {
	for _, f := range [...]struct{ name, value string }{{"--dependency", sp.DepText}, {"--array", sp.ArrayText},
		{"the command line", sp.Submit}, {"--reservation", sp.Reservation}} {
		if len(f.value) > proto.MaxFieldBytes {
			return refuse(proto.CodeBadRequest, "%s is %d bytes long, the limit is %d", f.name, len(f.value),
				proto.MaxFieldBytes)
		}
	}
	if len(sp.Limits) > maxLimits {
		return refuse(proto.CodeBadRequest, "%d resource limits, the kernel has %d", len(sp.Limits), maxLimits)
	}
	for _, l := range sp.Limits {
		if l.Resource >= maxLimits {
			return refuse(proto.CodeBadRequest, "the kernel has no resource limit of the number %d", l.Resource)
		}
	}
	if sp.Warning != nil {
		if err := sp.Warning.Check(); err != nil {
			return refuse(proto.CodeBadRequest, "--signal: %v", err)
		}
	}
	if sp.Umask > 0o777 {
		return refuse(proto.CodeBadRequest, "the umask %o has more than file permissions", sp.Umask)
	}
	for _, list := range [...][]model.GresReq{sp.Gres, sp.Extra().GresToo, sp.Extra().GPUsPerSocket} {
		for i := range list {
			if list[i].Per > model.PerTask {
				return refuse(proto.CodeInvalidGres, "%s: this version knows no count of the kind %d", list[i].Name, list[i].Per)
			}
		}
	}
	if err := validTasks(sp.Tasklist); err != nil {
		return refuse(proto.CodeArray, "--array=%s: %v", sp.ArrayText, err)
	}
	return fitsLength(sp)
}

// fitsLength bounds a description as it goes into the log: there it is taken as it is, since what one version finds too
// long another may not.
func fitsLength(sp *model.Spec) error {
	if n := state.SpecBytes(sp); n > proto.MaxSpecBytes {
		return refuse(proto.CodeBadRequest, "the job's description has %d bytes, the limit is %d: its arguments, names of "+
			"nodes and options together; write long arguments into a file and pass its name", n, proto.MaxSpecBytes)
	}
	return nil
}

// validNeeds checks what a job asks for, as the commands did before they sent it, and what its texts may be.
func validNeeds(sp *model.Spec) error {
	m := sp.Extra()
	if len(m.Prefer) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "--prefer is %d bytes long, the limit is %d", len(m.Prefer), proto.MaxFieldBytes)
	}
	if b := m.Bind; b != nil &&
		max(len(b.GPU), len(b.CPU), len(b.Mem), len(b.Dist), len(b.Hint)) > proto.MaxFieldBytes {
		return refuse(proto.CodeBadRequest, "--gpu-bind, --cpu-bind, --mem-bind or --distribution is longer than %d bytes",
			proto.MaxFieldBytes)
	}
	return refusedAsk(ask.Check(sp))
}

// askCodes are the codes of what package ask refuses.
var askCodes = map[ask.About]proto.Code{ask.Request: proto.CodeBadRequest, ask.Gres: proto.CodeInvalidGres,
	ask.License: proto.CodeBadRequest, ask.Feature: proto.CodeFeature, ask.Nodes: proto.CodeNodeCount,
	ask.Time: proto.CodeTimeLimit, ask.Moment: proto.CodeTimeValue}

// refusedAsk gives a refusal of package ask its code. The sentence is the one that commands say.
func refusedAsk(err error) error {
	var no *ask.Error
	if errors.As(err, &no) {
		return rpc.Errorf(askCodes[no.About], "%s", no.Error())
	}
	return err
}

// leastCutS is what a limit that comes from a deadline can shrink to while the job waits, seconds.
const leastCutS = 60

// fitTimes checks --time, the limit that takes its place, --time-min, --begin and --deadline against each other. A job
// with a deadline but without a time limit gets the limit of its first partition, at most the time to the deadline,
// which shrinks while it waits.
func fitTimes(v *state.View, now model.Time, sp *model.Spec) error {
	if p, least := v.Partition(sp.Partitions[0]), sp.Extra().TimeMinS; p != nil && sp.LimitS == model.NotSet {
		if limit := p.LimitS(sp); least > limit {
			return refuse(proto.CodeBadRequest, "Invalid time-min specification (exceeds job's time or other limits): "+
				"--time-min=%s is more than the %s that jobs of partition %s have without --time; give --time too",
				walltime.Limit(least, false), walltime.Limit(limit, false), p.Name)
		}
	}
	if sp.Deadline != 0 && sp.LimitS == model.NotSet {
		sp.LimitS = model.Unlimited
		if p := v.Partition(sp.Partitions[0]); p != nil {
			sp.LimitS = p.LimitS(sp)
		}
		left := int64(sp.Deadline-max(now, sp.Begin)) / 1000
		if left > leastCutS && sp.LimitS > left {
			if sp.LimitS = left; sp.Extra().TimeMinS == 0 {
				withTimeMin(sp, leastCutS)
			}
		}
	}
	return refusedAsk(ask.CheckTimes(sp, now))
}

// withTimeMin sets --time-min in a Spec.
func withTimeMin(sp *model.Spec, s int64) {
	m := sp.Extra()
	m.TimeMinS = s
	sp.More = &m
}

// alternates puts partitions that take no jobs aside for their alternates (Alternate), and says so.
func alternates(v *state.View, sp *model.Spec) (notes []string) {
	list := slices.Clone(sp.Partitions)
	for i, name := range list {
		p := v.Partition(name)
		if p == nil || !p.Closed() || p.Alternate == "" {
			continue
		}
		if q := v.Partition(p.Alternate); q != nil && !q.Closed() {
			list[i] = q.Name
			notes = append(notes, fmt.Sprintf("partition %s is in state %s; the job goes to partition %s (Alternate)", name,
				p.State, q.Name))
		}
	}
	if notes != nil {
		sp.Partitions = list[:0:0]
		for _, name := range list {
			if !slices.Contains(sp.Partitions, name) {
				sp.Partitions = append(sp.Partitions, name)
			}
		}
	}
	return notes
}
