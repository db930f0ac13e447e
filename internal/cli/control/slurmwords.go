package control

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// slurmwords.go has scontrol's commands about what gbatch has in another way: scripts that set a cluster up run them,
// and have to go on.

// debugFlags are the names that DebugFlags= of slurm.conf may have, in small letters.
var debugFlags = strings.Fields(`
	accrue agent auditrpcs backfill backfillmap burstbuffer cgroup cpu_bind cpufrequency data dependency
	elasticsearch energy extsensors federation frontend gang glob_silence gres heterojobs influxdb
	interconnect jobaccountgather jobcomp jobcontainer license metrics mpi network networkraw
	nodefeatures no_conf_hash power priority profile protocol reservation route sackd script selecttype
	steps switch tls tracejobs triggers workqueue`)

// setDebugFlags takes the flags that Slurm has.
func (c *control) setDebugFlags(words []string) error {
	if len(words) != 1 {
		return tooFew("too few arguments for keyword:setdebugflags", "setdebugflags [+|-]NAME")
	}
	for name := range strings.SplitSeq(words[0], ",") {
		if !slices.Contains(debugFlags, strings.ToLower(strings.TrimLeft(name, "+-"))) {
			return plain{fmt.Errorf("invalid debug flag: %s\nUsage: setdebugflags [+|-]NAME", name)}
		}
	}
	c.say("note: the log has one level for everything: setdebug LEVEL changes it")
	return nil
}

// schedLogLevel answers as a Slurm without SlurmSchedLogFile does.
func (c *control) schedLogLevel(words []string) error {
	if len(words) != 1 {
		return tooFew("too few arguments for keyword:schedloglevel", "schedloglevel 0 or 1")
	}
	switch strings.ToLower(words[0]) {
	case "0", "1", "disable", "enable":
		return plain{errors.New("slurm_set_schedlog_level error: Requested operation is presently disabled: the scheduler " +
			"writes into the controller's log; setdebug LEVEL changes it, and gdiag has its statistics")}
	}
	return plain{fmt.Errorf("invalid schedlog level: %s", words[0])}
}

// dampening takes what Slurm takes; Fair Tree ignores it there too.
func (c *control) dampening(words []string) error {
	if len(words) != 1 {
		return tooFew("too few arguments for keyword:fsdampeningfactor", "fsdampeningfactor NUMBER")
	}
	if n, err := strconv.ParseUint(words[0], 10, 16); err != nil || n == 0 {
		return plain{fmt.Errorf("invalid dampening factor: %s", words[0])}
	}
	c.say("note: FairShareDampeningFactor has no effect under Fair Tree")
	return nil
}

// errNumStr prints the sentence of an error number.
func (c *control) errNumStr(words []string) error {
	if len(words) != 1 {
		return plain{errors.New("one arguments required for keyword:errnumstr; write the number of an error")}
	}
	n, err := strconv.ParseInt(words[0], 10, 32)
	if err != nil {
		return plain{fmt.Errorf("numeric arguments required for keyword:errnumstr: %s", words[0])}
	}
	text := proto.NumberText(int(n))
	if text == "" {
		if text = syscall.Errno(n).Error(); n == 0 {
			text = "no error"
		}
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	fmt.Fprintln(c.Stdout, text)
	return nil
}

// say prints a line beside the output.
func (c *control) say(text string) {
	if !c.quiet {
		fmt.Fprintf(c.Stderr, "%s: %s\n", c.Program, text)
	}
}

// slurmKeys are keys of Slurm's configuration about what gbatch does not have, with what Slurm prints where they are
// not set. Tools that read show config by Slurm's name find them. ~ is a blank.
const slurmKeys = `
AccountingStorageExternalHost=(null) AccountingStorageParameters=(null) AccountingStorageUser=N/A
AccountingStoreFlags=job_comment AcctGatherEnergyType=(null) AcctGatherFilesystemType=(null)
AcctGatherInterconnectType=(null) AcctGatherNodeFreq=0~sec AcctGatherProfileType=(null) AllowSpecResourcesUsage=No
AuthAltTypes=(null) AuthAltParameters=(null) AuthInfo=(null) AuthType=(null) BcastExclude=(null)
BcastParameters=(null) BurstBufferType=(null) CliFilterPlugins=(null) CredType=(null) CommunicationParameters=(null)
CpuFreqDef=Unknown CpuFreqGovernors=(null) DebugFlags=(null) EioTimeout=60 EpilogMsgTime=0~usec
FairShareDampeningFactor=1 FederationParameters=(null) GetEnvTimeout=120~sec GpuFreqDef=(null) GroupUpdateForce=1
GroupUpdateTime=600~sec HASH_VAL=Match JobAcctGatherParams=(null) JobCompHost=(null)
JobCompLoc=(null) JobCompParams=(null) JobCompPort=0 JobCompType=(null) JobCompUser=(null) JobSubmitPlugins=(null)
LogTimeFormat=rfc3339_ms MCSParameters=(null) MCSPlugin=(null) NodeFeaturesPlugins=(null) PlugStackConfig=(null)
PluginDir=(null) PrEpParameters=(null) PrEpPlugins=(null) PriorityParameters=(null)
PrioritySiteFactorParameters=(null) PrioritySiteFactorPlugin=(null)
SlurmSchedLogFile=(null)
SlurmSchedLogLevel=0 SlurmctldAddr=(null) SlurmctldPidFile=(null)
SlurmctldSyslogDebug=(null) SlurmdPidFile=(null) SlurmdParameters=(null)
SlurmdSyslogDebug=(null) SlurmdUser=root(0) SrunPortRange=0-0
SwitchParameters=(null) SwitchType=(null) TCPTimeout=2~sec TreeWidth=16 UsePam=No VSizeFactor=0~percent
LaunchType=launch/slurm X11Parameters=(null)
`

// pmixKeys are the keys of mpi.conf, which gbatch does not read, with what Slurm prints without that file.
const pmixKeys = `
PMIxCliTmpDirBase=(null) PMIxCollFence=(null) PMIxDebug=0 PMIxDirectConn=yes PMIxDirectConnEarly=no
PMIxDirectConnUCX=no PMIxDirectSameArch=no PMIxEnv=(null) PMIxFenceBarrier=no PMIxNetDevicesUCX=(null)
PMIxTimeout=300 PMIxTlsUCX=(null)
`

// keysOf gives keys and values as slurmKeys has them.
func keysOf(text string) (list []model.KV) {
	for _, w := range strings.Fields(text) {
		key, value, _ := strings.Cut(w, "=")
		list = append(list, model.KV{Key: key, Value: strings.ReplaceAll(value, "~", " ")})
	}
	return list
}

// withSlurmKeys adds those of which the configuration has none.
func withSlurmKeys(list []model.KV) []model.KV {
	have := map[string]bool{}
	for _, k := range list {
		have[k.Key] = true
	}
	for _, k := range keysOf(slurmKeys) {
		if !have[k.Key] {
			list = append(list, k)
		}
	}
	return list
}
