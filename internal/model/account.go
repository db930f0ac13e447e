package model

import (
	"fmt"
	"strings"

	"gbatch/internal/wire"
)

// Accounts, users, associations and QOS: limits, shares and rights. They are replicated facts, changed by gacctmgr.
// Names are in lower case, as in Slurm.

// Limit is a count that may be unset. It is stored plus one, so that a zero value is "no limit".
type Limit int64

// LimitOf gives a limit of n.
func LimitOf(n int64) Limit { return Limit(max(n, 0) + 1) }

// Value gives the limit and whether there is one.
func (l Limit) Value() (n int64, set bool) { return int64(l) - 1, l > 0 }

// TRESLimit is a limit on one trackable resource. Units: CPUs, MiB, nodes, generic resources; in *Mins fields times
// minutes.
type TRESLimit struct {
	TRES    string // cpu, mem, node, billing, energy, gres/gpu, gres/gpu:h100, license/x
	Count   int64
	Percent bool // Count is in hundredths of a percent of the nodes that are up: 7000 is 70%
}

func (x *TRESLimit) Wire(c *wire.C) {
	wire.Text(c, &x.TRES, MaxName)
	wire.Int(c, &x.Count)
	wire.Bool(c, &x.Percent)
}

// Of gives the limit in units, rounded down; total is the cluster's amount of the resource.
func (l TRESLimit) Of(total int64) int64 {
	if !l.Percent {
		return l.Count
	}
	return total/10000*l.Count + total%10000*l.Count/10000
}

// Account is a bank account; they form a tree below "root".
type Account struct {
	Name         string
	Parent       string // "" for root only
	Description  string
	Organization string
	Coordinators []string // users who may change the account and everything below it
}

func (x *Account) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Parent, MaxName)
	wire.Text(c, &x.Description, MaxText)
	wire.Text(c, &x.Organization, MaxName)
	wire.Texts(c, &x.Coordinators, MaxList, MaxName)
}

// AccountName gives an account's name in lower case. Every account name from outside passes through it: in submissions,
// changes, filters, reservations and the configuration.
func AccountName(name string) string { return strings.ToLower(name) }

// SameAccount reports whether two names mean the same account. Jobs, records and reservations of older versions may
// have capitals.
func SameAccount(a, b string) bool { return strings.EqualFold(a, b) }

// HasAccount reports whether a list names an account.
func HasAccount(list []string, name string) bool {
	for _, x := range list {
		if SameAccount(x, name) {
			return true
		}
	}
	return false
}

// RootAccount is the root of the tree of accounts. It always exists.
const RootAccount = "root"

// AdminLevel is what a user may change apart from their own jobs. The numbers are stored: append only.
type AdminLevel uint8

// The levels.
const (
	AdminNone AdminLevel = iota
	AdminOperator
	AdminFull
)

// String gives Slurm's word.
func (a AdminLevel) String() string {
	switch a {
	case AdminOperator:
		return "Operator"
	case AdminFull:
		return "Administrator"
	}
	return "None"
}

// User is a person, or a program, with accounts.
type User struct {
	Name           string
	DefaultAccount string
	Admin          AdminLevel
	DefaultWCKey   string // the wckey of jobs that name none; "": they have none
}

func (x *User) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.DefaultAccount, MaxName)
	wire.Int(c, &x.Admin)
	wire.Text(c, &x.DefaultWCKey, MaxName)
}

// WCKey is a workload characterization key of a user: a word for usage across accounts. Users have those that an
// administrator has given them and, with TrackWCKey, those that their jobs have named.
type WCKey struct {
	ID   uint32
	User string
	Name string
}

func (x *WCKey) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.User, MaxName)
	wire.Text(c, &x.Name, MaxName)
}

// PresetMark stands before the wckey of a job that named none: it is its user's default, as Slurm writes it.
const PresetMark = "*"

// WCKeyName gives the key that a job's text means: in lower case, without the mark.
func WCKeyName(text string) string { return strings.ToLower(strings.TrimPrefix(text, PresetMark)) }

// HasWCKey reports whether a filter has a job's wckey. With the mark it picks jobs that named none; without, as in
// Slurm, all jobs of that key.
func HasWCKey(filter []string, text string) bool {
	for _, f := range filter {
		if f = strings.ToLower(f); f == text || f == WCKeyName(text) {
			return true
		}
	}
	return false
}

// maxWCKey bounds the name of a wckey, bytes.
const maxWCKey = 128

// CheckWCKey refuses a name that could not be written in lists.
func CheckWCKey(name string) error {
	if len(name) > maxWCKey {
		return fmt.Errorf("the wckey %.20s... is longer than %d letters", name, maxWCKey)
	}
	if i := strings.IndexFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || strings.ContainsRune("|,'\"\\"+PresetMark, r)
	}); i >= 0 {
		return fmt.Errorf("the wckey %q contains %q, which would tear lists; use letters, digits, dots, - and _", name,
			name[i])
	}
	return nil
}

// AssocKey names an association. User is "" for an account's own association, Partition is "" for all partitions.
type AssocKey struct {
	Account   string
	User      string
	Partition string
}

// Association has the shares and limits of an account, or of a user in an account (and perhaps in one partition). A
// limit that is unset comes from the nearest association above: the account's, then its parent's. Grp limits hold for
// the sum of everything below.
type Association struct {
	ID        uint32
	Account   string
	User      string
	Partition string

	Shares    int64 // Fairshare; ShareOfParent for parent
	Priority  Limit
	QOS       []string // QOS that jobs may use, in order of name; nil: those of the account above
	DefQOS    string   // "": that of the account above
	GrpJobs   Limit
	GrpAccrue Limit
	GrpSubmit Limit
	GrpWallS  Limit // seconds

	GrpTRES        []TRESLimit // every TRES list is in order of name
	GrpTRESMins    []TRESLimit
	GrpTRESRunMins []TRESLimit

	MaxJobs        Limit
	MaxAccrue      Limit
	MaxSubmit      Limit
	MaxWallS       Limit
	MinPrioThresh  Limit
	MaxTRESPerJob  []TRESLimit
	MaxTRESPerNode []TRESLimit
	MaxTRESMins    []TRESLimit // per job
	MaxTRESRunMins []TRESLimit

	GuaranteedTRES []TRESLimit // of an account: what its jobs get back from those who borrow it
}

func (x *Association) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.Account, MaxName)
	wire.Text(c, &x.User, MaxName)
	wire.Text(c, &x.Partition, MaxName)
	wire.Int(c, &x.Shares)
	wire.Int(c, &x.Priority)
	wire.Texts(c, &x.QOS, MaxList, MaxName)
	wire.Text(c, &x.DefQOS, MaxName)
	wire.Int(c, &x.GrpJobs)
	wire.Int(c, &x.GrpAccrue)
	wire.Int(c, &x.GrpSubmit)
	wire.Int(c, &x.GrpWallS)
	wire.List(c, &x.GrpTRES, MaxFew)
	wire.List(c, &x.GrpTRESMins, MaxFew)
	wire.List(c, &x.GrpTRESRunMins, MaxFew)
	wire.Int(c, &x.MaxJobs)
	wire.Int(c, &x.MaxAccrue)
	wire.Int(c, &x.MaxSubmit)
	wire.Int(c, &x.MaxWallS)
	wire.Int(c, &x.MinPrioThresh)
	wire.List(c, &x.MaxTRESPerJob, MaxFew)
	wire.List(c, &x.MaxTRESPerNode, MaxFew)
	wire.List(c, &x.MaxTRESMins, MaxFew)
	wire.List(c, &x.MaxTRESRunMins, MaxFew)
	wire.List(c, &x.GuaranteedTRES, MaxFew)
}

// UncountedText says why an association can't have what Uncounted names, and where it belongs; "" if all counts.
func (a *Association) UncountedText() string {
	switch name := a.Uncounted(); {
	case name == "":
		return ""
	case a.OfPool():
		return name + " is not counted for an account in one partition (" + a.Account + " in " + a.Partition +
			"): set it for the account, or for a QOS that the partition has (PartitionName=" + a.Partition + " QOS=...)"
	default:
		return name + " is an account's or a QOS's, not a user's (" + a.User + " in " + a.Account + ")"
	}
}

// ShareOfParent as Shares says that the association's parent is used for fair-share.
const ShareOfParent int64 = 1<<31 - 1

// Key gives the association's name.
func (a *Association) Key() AssocKey { return AssocKey{a.Account, a.User, a.Partition} }

// OfPool reports whether it has an account's limits in one partition. They hold for the account and those below it,
// beside the account's own association.
func (a *Association) OfPool() bool { return a.User == "" && a.Partition != "" }

// Uncounted names the first value that is set and has no meaning here; "" if there is none. Usage, priority and rights
// are an account's as a whole, and a guarantee is no user's.
func (a *Association) Uncounted() string {
	if !a.OfPool() {
		if a.User != "" && len(a.GuaranteedTRES) > 0 {
			return "GuaranteedTRES"
		}
		return ""
	}
	for _, x := range []struct {
		name string
		set  bool
	}{{"Fairshare", a.Shares != 0}, {"Priority", a.Priority != 0}, {"QOS", a.QOS != nil}, {"DefaultQOS", a.DefQOS != ""},
		{"GrpJobsAccrue", a.GrpAccrue != 0}, {"GrpWall", a.GrpWallS != 0}, {"GrpTRESMins", a.GrpTRESMins != nil},
		{"MaxJobs", a.MaxJobs != 0}, {"MaxJobsAccrue", a.MaxAccrue != 0}, {"MaxSubmitJobs", a.MaxSubmit != 0},
		{"MaxTRESRunMins", a.MaxTRESRunMins != nil}, {"MinPrioThreshold", a.MinPrioThresh != 0}} {
		if x.set {
			return x.name
		}
	}
	return ""
}

// QOSFlags are a QOS's flags, a set. The numbers are stored: append only.
type QOSFlags uint32

// The flags, with Slurm's meaning.
const (
	QOSDenyOnLimit QOSFlags = 1 << iota // refuse at submission a job that a limit would hold
	QOSEnforceUsageThreshold
	QOSNoReserve // backfill holds no reservation for its jobs
	QOSPartitionMaxNodes
	QOSPartitionMinNodes
	QOSOverPartQOS
	QOSPartitionTimeLimit
	QOSRequiresReservation
	QOSNoDecay // its usage doesn't decay
	QOSUsageFactorSafe
	QOSRelative  // its limits are percentages of the cluster
	QOSNoPreempt // its jobs may refuse to be preempted (--no-preempt); not Slurm's
	QOSGPUIdleOK // its jobs may leave their GPUs idle (--gpu-idle=off); not Slurm's
	QOSHeadroom  // its jobs may have what ReservePercent of a partition keeps back; not Slurm's
)

var qosFlagNames = []string{"DenyOnLimit", "EnforceUsageThreshold", "NoReserve", "PartitionMaxNodes",
	"PartitionMinNodes",
	"OverPartQOS", "PartitionTimeLimit", "RequiresReservation", "NoDecay", "UsageFactorSafe", "Relative", "NoPreempt",
	"GpuIdleOK", "Headroom"}

// String gives Slurm's words with commas between.
func (f QOSFlags) String() string {
	var out []string
	for i, n := range qosFlagNames {
		if f&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return strings.Join(out, ",")
}

// QOSFlag finds a flag by name, whatever its case.
func QOSFlag(name string) (QOSFlags, bool) {
	for i, n := range qosFlagNames {
		if strings.EqualFold(n, name) {
			return 1 << i, true
		}
	}
	return 0, false
}

// QOSFlagNames lists the names of all flags.
func QOSFlagNames() []string { return append([]string(nil), qosFlagNames...) }

// FactorOne is 1.0 as a UsageFactor, a UsageThreshold or a LimitFactor: they are in millionths.
const FactorOne int64 = 1_000_000

// QOS is a quality of service: a class of jobs with a priority, limits and rights. Limits that are unset are not
// limited here, but may be by the association.
type QOS struct {
	ID          uint32
	Name        string
	Description string
	Priority    uint32
	Flags       QOSFlags

	Preempt            []string // QOS whose jobs it may preempt, in order of name
	PreemptMode        string   // "": the cluster's; else OFF, CANCEL, REQUEUE, SUSPEND
	GraceTimeS         int64
	PreemptExemptTimeS Limit
	UsageFactor        int64 // millionths: usage is multiplied by it
	UsageThreshold     Limit // millionths of a fair-share factor
	LimitFactor        int64 // millionths; 0: unset
	MinPrioThresh      Limit

	GrpJobs        Limit
	GrpAccrue      Limit
	GrpSubmit      Limit
	GrpWallS       Limit
	GrpTRES        []TRESLimit
	GrpTRESMins    []TRESLimit
	GrpTRESRunMins []TRESLimit
	GuaranteedTRES []TRESLimit // other QOS may use it while it is idle; preemption takes it back

	MaxWallS              Limit
	MaxTRESPerJob         []TRESLimit
	MaxTRESPerNode        []TRESLimit
	MaxTRESMins           []TRESLimit // per job
	MinTRES               []TRESLimit // per job
	MaxTRESPerUser        []TRESLimit
	MaxJobsPerUser        Limit
	MaxAccruePerUser      Limit
	MaxSubmitPerUser      Limit
	MaxTRESRunMinsPerUser []TRESLimit
	MaxTRESPerAccount     []TRESLimit
	MaxJobsPerAccount     Limit
	MaxAccruePerAccount   Limit
	MaxSubmitPerAccount   Limit
	MaxTRESRunMinsPerAcct []TRESLimit
}

func (x *QOS) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Description, MaxText)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Flags)
	wire.Texts(c, &x.Preempt, MaxList, MaxName)
	wire.Text(c, &x.PreemptMode, MaxName)
	wire.Int(c, &x.GraceTimeS)
	wire.Int(c, &x.PreemptExemptTimeS)
	wire.Int(c, &x.UsageFactor)
	wire.Int(c, &x.UsageThreshold)
	wire.Int(c, &x.LimitFactor)
	wire.Int(c, &x.MinPrioThresh)
	wire.Int(c, &x.GrpJobs)
	wire.Int(c, &x.GrpAccrue)
	wire.Int(c, &x.GrpSubmit)
	wire.Int(c, &x.GrpWallS)
	wire.List(c, &x.GrpTRES, MaxFew)
	wire.List(c, &x.GrpTRESMins, MaxFew)
	wire.List(c, &x.GrpTRESRunMins, MaxFew)
	wire.List(c, &x.GuaranteedTRES, MaxFew)
	wire.Int(c, &x.MaxWallS)
	wire.List(c, &x.MaxTRESPerJob, MaxFew)
	wire.List(c, &x.MaxTRESPerNode, MaxFew)
	wire.List(c, &x.MaxTRESMins, MaxFew)
	wire.List(c, &x.MinTRES, MaxFew)
	wire.List(c, &x.MaxTRESPerUser, MaxFew)
	wire.Int(c, &x.MaxJobsPerUser)
	wire.Int(c, &x.MaxAccruePerUser)
	wire.Int(c, &x.MaxSubmitPerUser)
	wire.List(c, &x.MaxTRESRunMinsPerUser, MaxFew)
	wire.List(c, &x.MaxTRESPerAccount, MaxFew)
	wire.Int(c, &x.MaxJobsPerAccount)
	wire.Int(c, &x.MaxAccruePerAccount)
	wire.Int(c, &x.MaxSubmitPerAccount)
	wire.List(c, &x.MaxTRESRunMinsPerAcct, MaxFew)
}

// DefaultQOS is the QOS of jobs that name none if their association has no default QOS.
const DefaultQOS = "normal"

// ShippedQOS are the classes that a new cluster has: strict order with PriorityFlags=STRICT_QOS, or by their Priority
// and PriorityWeightQOS.
func ShippedQOS() []QOS {
	out := []QOS{
		{ID: 1, Name: DefaultQOS, Description: "Normal QOS default", Priority: 200},
		{ID: 2, Name: "low", Description: "after everything else", Priority: 100},
		{ID: 3, Name: "high", Description: "before normal jobs", Priority: 300},
		{ID: 4, Name: "critical", Description: "before everything else", Priority: 400},
	}
	for i := range out {
		out[i].UsageFactor = FactorOne
	}
	return out
}

// AcctOp is what one edit of accounts does. The numbers are stored: append only.
type AcctOp uint8

// The operations. Put replaces the record of that name or makes it.
const (
	PutAccount AcctOp = iota + 1
	DropAccount
	PutUser
	DropUser
	PutAssoc
	DropAssoc
	PutQOS
	DropQOS
	ResetUsage // of an account and all below it or, with User, of a user in it, with Partition only of that association
	PutWCKey
	DropWCKey
	RenameUser // of User, to NewName
)

// AcctEdit is one edit of accounts. Drop and ResetUsage look only at the record's names.
type AcctEdit struct {
	Op      AcctOp
	Account *Account
	User    *User
	Assoc   *Association
	QOS     *QOS
	WCKey   *WCKey
	NewName string
}

func (x *AcctEdit) Wire(c *wire.C) {
	wire.Int(c, &x.Op)
	wire.Ptr(c, &x.Account)
	wire.Ptr(c, &x.User)
	wire.Ptr(c, &x.Assoc)
	wire.Ptr(c, &x.QOS)
	wire.Ptr(c, &x.WCKey)
	wire.Text(c, &x.NewName, MaxName)
}
