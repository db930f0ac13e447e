package ctld

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/state"
	"gbatch/internal/trust"
	"gbatch/internal/userdb"
)

// caller.go says who asks, and what they may ask. A caller is made in two ways only: the kernel says who has connected
// to this controller's socket, and another daemon passes on a request. A controller passes on what its own kernel has
// said. Of what other daemons say only the user id is taken, as far as internal/trust believes them; all else comes
// from this host's user database.

// caller is the user who asks.
type caller struct {
	proto.Caller
	most model.Rights // the most that this way of asking allows
	from model.Origin
	via  *model.Cert // of the host that speaks for the user, or had the user's token made; nil: a controller's kernel does

	// JobSubmitProgram has set what only operators may set, and may: the user's own request has been checked before
	ranked bool
}

// kernelSays makes the caller of a process on this host.
func (c *Controller) kernelSays(ctx context.Context, u *rpc.User) *caller {
	who := &caller{most: model.RightsAdministrator, from: model.FromController}
	who.Caller = proto.Caller{UID: u.UID, GID: u.GID, Groups: notRoots(u.UID, u.Groups), User: c.people.Name(ctx, u.UID),
		Group: c.people.Group(ctx, u.GID), Host: c.host}
	return who
}

// notRoots leaves out root's group for everybody else.
func notRoots(uid uint32, groups []uint32) []uint32 {
	if uid == 0 || !slices.Contains(groups, 0) {
		return groups
	}
	return slices.DeleteFunc(slices.Clone(groups), func(g uint32) bool { return g == 0 })
}

// vouched makes the caller of a request that another daemon passes on.
func (c *Controller) vouched(ctx context.Context, f *proto.Forward, role, name string) (*caller, error) {
	by, v := trust.OfRole(role), c.machine.View()
	kind, row := innerKind(f.Kind, f.Body), proto.RequestIn(f.Kind, f.Body)
	claim := &trust.Claim{By: by, Kind: kind, Effect: row.Effect, UID: f.Caller.UID, System: c.opts.UID,
		HasJob: func(uid uint32) bool { return c.hasJobOn(uid, name) }}
	if by == trust.Node && v.Config().Cluster != "" && v.Node(name) == nil {
		return nil, refuse(proto.CodeNotHere, "node %s is not in the configuration, and passes nothing on", name)
	}
	switch trust.Vouch(claim) {
	case trust.Believed:
	case trust.SystemUser:
		return nil, refuse(proto.CodeNotHere, "root's commands are taken on controllers only; run it on %s", c.opts.Name)
	case trust.NoJob:
		return nil, refuse(proto.CodeNotHere,
			"node %s may speak only for users with a job on it; submit from a login node or a controller", name)
	case trust.NoUser:
		return nil, refuse(proto.CodeAccess, "%d is no user id", f.Caller.UID)
	default:
		if by == trust.Node {
			return nil, refuse(proto.CodeNotHere,
				"a node passes on only what users do with their own jobs; run it on a login node or a controller")
		}
		return nil, refuse(proto.CodeNotHere, "a daemon with role %s can't pass this on (kind %d); run it on %s", role, kind,
			c.opts.Name)
	}
	who := &caller{most: trust.MostRights(by, v.Config().Params.LoginRights), from: model.FromController}
	if by == trust.Controller {
		who.Caller, who.via = f.Caller, f.Caller.Via
		who.most -= min(who.most, model.Rights(f.Caller.Less))
		return who, nil
	}
	who.from = model.FromHost
	if trust.SeesAs(claim) == model.NoID {
		f.Caller.UID, f.Caller.GID = model.NoID, model.NoID
	}
	return who, c.identify(ctx, who, &f.Caller, row.Effect != proto.Reads, name)
}

// forwardPayer names who pays for a request that another daemon passes on; "": the total alone bounds it. The sender's
// other users do not wait for this one. What a host says costs no user anything for whom the host may not speak.
func (c *Controller) forwardPayer(uid uint32, role, name string) string {
	switch by := trust.OfRole(role); {
	case by == trust.Node && !c.hasJobOn(uid, name), by != trust.Controller && uid == 0:
		return role + " " + name
	case uid == 0:
		return ""
	}
	return server.Payer(uid)
}

// identify fills in who a user of another host is, by this host's user database. Reading does not fail for who is
// unknown here.
func (c *Controller) identify(ctx context.Context, who *caller, said *proto.Caller, strict bool, host string) error {
	who.UID, who.GID, who.Host = said.UID, model.NoID, host
	if plainHost(said.Host) {
		who.Host = said.Host
	}
	u, err := c.people.User(ctx, said.UID)
	switch {
	case err == nil:
		who.User, who.Groups = u.Name, notRoots(u.UID, u.Groups)
		if u.Has(said.GID) {
			who.GID, who.Group = said.GID, c.people.Group(ctx, said.GID)
		}
	default:
		who.User = strconv.FormatUint(uint64(said.UID), 10)
	}
	switch {
	case !strict:
		return nil
	case errors.Is(err, userdb.ErrUnknown):
		return refuse(proto.CodeAccess, "user id %d of host %s is unknown on controller %s: getent passwd %[1]d finds "+
			"nothing there; hosts and controllers need the same users", said.UID, host, c.opts.Name)
	case err != nil:
		return refuse(proto.CodeBusy, "the user database of controller %s does not say who user id %d is (%v); try again "+
			"in a moment", c.opts.Name, said.UID, err)
	case who.GID == model.NoID:
		return refuse(proto.CodeAccess, "on host %s user %s has group id %d, which the user database of controller %s does "+
			"not give them; hosts and controllers need the same groups", host, who.User, said.GID, c.opts.Name)
	}
	if err := model.CheckIDs(who.UID, who.GID, who.Groups, false); err != nil {
		return refuse(proto.CodeAccess, "%v", err)
	}
	return nil
}

// plainHost reports whether a text can be a host's name.
func plainHost(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_' {
			return false
		}
	}
	return name != "" && len(name) <= model.MaxName
}

// innerKind gives the kind of a request, or of the one that it carries.
func innerKind(kind uint16, body []byte) uint16 {
	switch kind {
	case proto.KindOnce:
		var once proto.Once
		if proto.Decode(body, &once) == nil {
			return once.Kind
		}
	case proto.KindStale:
		var stale proto.Stale
		if proto.Decode(body, &stale) == nil {
			return stale.Kind
		}
	}
	return kind
}

// nameOf gives the caller's login name from this host's user database.
func (c *Controller) nameOf(who *caller) string { return c.people.Name(context.Background(), who.UID) }

// level gives the caller's AdminLevel, as far as it counts here. Root and SlurmUser may do everything.
func (c *Controller) level(who *caller) model.AdminLevel {
	have := model.AdminNone
	if who.UID == 0 || who.UID == c.opts.UID {
		have = model.AdminFull
	} else if who.most >= model.RightsOperator {
		if u := c.machine.View().User(c.nameOf(who)); u != nil {
			have = u.Admin
		}
	}
	switch who.most {
	case model.RightsAdministrator:
		return have
	case model.RightsOperator:
		return min(have, model.AdminOperator)
	}
	return model.AdminNone
}

// operator reports whether the caller may act on other users' jobs and on nodes.
func (c *Controller) operator(who *caller) bool { return c.level(who) >= model.AdminOperator }

// coordinates reports whether the caller coordinates an account or one above it, and that counts here.
func (c *Controller) coordinates(v *state.View, who *caller, account string) bool {
	if who.most < model.RightsCoordinator {
		return false
	}
	for a := v.Account(account); a != nil; a = v.Account(a.Parent) {
		if slices.Contains(a.Coordinators, c.nameOf(who)) {
			return true
		}
	}
	return false
}

// class gives the caller's column in the table of trust. Who coordinates what is asked account by account.
func (c *Controller) class(who *caller) trust.Caller {
	switch c.level(who) {
	case model.AdminFull:
		return trust.Administrator
	case model.AdminOperator:
		return trust.Operator
	}
	return trust.User
}

// may reports whether the caller may make a request of a kind about a job.
func (c *Controller) may(kind uint16, who *caller, j *model.Job) bool {
	if trust.May(c.class(who), kind).Covers(j.Spec.UID == who.UID, false) {
		return true
	}
	return trust.May(trust.Coordinator, kind).Covers(false, true) && c.coordinates(c.machine.View(), who, j.Spec.Account)
}

// mine reports whether the caller may change a job: its owner, operators, and coordinators of its account.
func (c *Controller) mine(who *caller, j *model.Job) bool { return c.may(proto.KindUpdateJob, who, j) }

// barred says why a kind of request is refused to those who have no right to it; "": in general words.
var barred = map[uint16]string{
	proto.KindDiagReset: "resetting the statistics is for operators",
	proto.KindDoctor: "gcontrol doctor looks into nodes and is for operators; gcontrol why JOBID says what holds " +
		"your jobs",
	proto.KindDump:       "only operators may dump the state: it holds everybody's scripts and environments",
	proto.KindMIG:        "GPUs are divided by operators",
	proto.KindUpdateNode: "nodes are changed by operators",
	proto.KindReserve:    "reservations are for operators",
	proto.KindEditMoney:  "credit is given, and invoices are made, by operators",
	proto.KindSetDebug:   "the controller's log is for operators",

	proto.KindUpdatePartition: "partitions are changed by operators",

	proto.KindReconfigure:     "the cluster is reconfigured by administrators",
	proto.KindEditControllers: "controllers are added and removed by administrators",
	proto.KindTakeover:        "leadership is handed over by administrators",
}

// mayAsk refuses a kind of request that the caller may not make at all, before its body is decoded.
func (c *Controller) mayAsk(who *caller, kind uint16) error {
	class := c.class(who)
	if trust.May(class, kind) != trust.Refused {
		return nil
	}
	all := *who
	all.most = model.RightsAdministrator
	if full := c.class(&all); full > class && trust.May(full, kind) != trust.Refused {
		return refuse(proto.CodeAccess, "%s, whom this host can't speak for; run it on controller %s, or see LoginRights in "+
			"gbatch.conf(5)", barred[kind], c.opts.Name)
	}
	return refuse(proto.CodeAccess, "%s", barred[kind])
}

// configOf gives the configuration that is replicated.
func (c *Controller) configOf(files *conf.Config) *model.Config {
	cfg := files.Model()
	cfg.Params.SlurmUID = c.opts.UID
	return cfg
}

const groupNamesWait = 5 * time.Second // for the user database; a name that is not known by then is none

// inGroups reports whether one of a caller's groups has one of these names.
func (c *Controller) inGroups(who *caller, names []string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), groupNamesWait)
	defer cancel()
	return has(names, who.Group) || slices.ContainsFunc(who.Groups, func(gid uint32) bool {
		return gid != who.GID && slices.Contains(names, c.people.Group(ctx, gid))
	})
}

// onHost reports whether a host is one of these names, with or without its domain.
func onHost(host string, names []string) bool {
	short, _, _ := strings.Cut(host, ".")
	return slices.ContainsFunc(names, func(name string) bool { return name == host || name == short })
}
