package conf

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// The keys of the main file that are about accounting.

func accountingSettings() []setting {
	return []setting{
		{name: "AccountingStorageType", effect: RestartCtld,
			read: func(c *Config, v string) fault {
				t, f := readWord(v, slices.Concat([]string{accountingDbd, accountingNone}, oldAccounting))
				if f.bad() {
					return fault{f.why, accountingDbd + " or " + accountingNone}
				}
				if c.AccountingStorageType = t; slices.Contains(oldAccounting, t) {
					c.AccountingStorageType = accountingDbd
				}
				return fault{}
			},
			remark: func(_ *Config, v string) (text, hint string) {
				if hasFold(oldAccounting, v) {
					return "AccountingStorageType=" + v + " is taken as " + accountingDbd +
						": gdbd keeps the records in its own database", "write " + accountingDbd
				}
				return "", ""
			},
			show: func(c *Config) string { return orNull(c.AccountingStorageType) }},
		text("AccountingStorageHost", RestartCtld, func(c *Config) *string { return &c.AccountingStorageHost }),
		text("AccountingStorageBackupHost", RestartAll, func(c *Config) *string { return &c.AccountingBackupHost }),
		portSetting("AccountingStoragePort", RestartAll, func(c *Config) *int64 { return &c.AccountingStoragePort }),
		{name: "AccountingStorageTRES", effect: NewJobs,
			read: func(c *Config, v string) fault {
				c.AccountingStorageTRES = nil
				for _, item := range splitList(v) {
					tres, f := readTRES(item)
					if f.bad() {
						return f
					}
					c.AccountingStorageTRES = append(c.AccountingStorageTRES, tres)
				}
				return fault{}
			},
			show: func(c *Config) string {
				return strings.Join(append([]string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"},
					c.AccountingStorageTRES...), ",")
			}},
		{name: "AccountingStorageEnforce", effect: NewJobs,
			read: func(c *Config, v string) (f fault) { c.Enforce, f = readEnforce(v); return f },
			show: func(c *Config) string { return c.Enforce.String() }},
		number("MaxDBDMsgs", AtOnce, func(c *Config) *int64 { return &c.Resend.MaxWaiting }, 0, 10_000_000),
		number("DbdResendRecords", AtOnce, func(c *Config) *int64 { return &c.Resend.KeepRecords }, 0, 1_000_000),
		number("DbdResendBytes", AtOnce, func(c *Config) *int64 { return &c.Resend.KeepBytes }, 0, 1<<30),
		seconds("DbdResendTime", AtOnce, func(c *Config) *int64 { return &c.Resend.KeepS }, 0, 30*86400),
		list("Accounts", NewJobs, func(c *Config) *[]string { return &c.Accounts }),
		text("DefaultAccount", NewJobs, func(c *Config) *string { return &c.DefaultAccount }),
		yesNo("TrackWCKey", NewJobs, func(c *Config) *bool { return &c.TrackWCKey }),
		{name: "JobAcctGatherType", effect: NextStart,
			read: func(c *Config, v string) (f fault) {
				c.JobAcctGatherType, f = readWord(v,
					[]string{"jobacct_gather/cgroup", "jobacct_gather/linux", "jobacct_gather/none"})
				return f
			},
			remark: func(c *Config, v string) (text, hint string) {
				if strings.EqualFold(v, "jobacct_gather/none") {
					return "JobAcctGatherType=jobacct_gather/none: CPU time and peak memory are measured all the same, from the " +
						"job's cgroup", "write jobacct_gather/cgroup"
				}
				return "", ""
			},
			show: func(c *Config) string { return c.JobAcctGatherType }},
		{name: "JobAcctGatherFrequency", effect: NextStart,
			read: func(c *Config, v string) (f fault) {
				for _, item := range splitList(v) {
					kind, value, ok := strings.Cut(item, "=")
					if !ok {
						kind, value = "task", item
					}
					n, f := readSeconds(value, 0, math.MaxInt32)
					if f.bad() {
						return fault{f.why, "task=30"}
					}
					if strings.EqualFold(kind, "task") {
						c.SampleIntervalS = n
					} else if _, f := readWord(kind, []string{"energy", "filesystem", "network"}); f.bad() {
						return fault{f.why, "task=30"}
					}
				}
				return fault{}
			},
			show: func(c *Config) string { return strconv.FormatInt(c.SampleIntervalS, 10) }},
	}
}

const (
	accountingDbd  = "accounting_storage/slurmdbd"
	accountingNone = "accounting_storage/none"
)

// oldAccounting are the types of older Slurms.
var oldAccounting = []string{"accounting_storage/mysql", "accounting_storage/filetxt", "accounting_storage/pgsql"}

var enforceWords = []string{"associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys", "all", "none"}

func readEnforce(v string) (Enforce, fault) {
	var e Enforce
	if v == "0" || v == "1" || v == "2" { // Slurm's old numbers
		return Enforce{Associations: v != "0", Limits: v == "2"}, fault{}
	}
	words, f := readWords(v, enforceWords)
	if f.bad() {
		return e, f
	}
	for _, w := range words {
		switch w {
		case "associations":
			e.Associations = true
		case "limits":
			e.Associations, e.Limits = true, true
		case "qos":
			e.Associations, e.QOS = true, true
		case "safe":
			e.Associations, e.Limits, e.Safe = true, true, true
		case "wckeys":
			e.Associations, e.WCKeys = true, true
		case "nojobs":
			e.NoJobs, e.NoSteps = true, true
		case "nosteps":
			e.NoSteps = true
		case "all": // all but nojobs and nosteps, as in Slurm
			e = Enforce{Associations: true, Limits: true, QOS: true, Safe: true, WCKeys: true}
		}
	}
	return e, fault{}
}

// String gives the words as scontrol shows them.
func (e Enforce) String() string {
	var out []string
	for _, w := range []struct {
		set  bool
		word string
	}{{e.Associations, "associations"}, {e.Limits, "limits"}, {e.NoJobs, "nojobs"}, {e.NoSteps, "nosteps"}, {e.QOS, "qos"},
		{e.Safe, "safe"}, {e.WCKeys, "wckeys"}} {
		if w.set {
			out = append(out, w.word)
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ",")
}
