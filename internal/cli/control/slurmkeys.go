package control

import (
	"strings"

	"gbatch/internal/model"
)

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
GroupUpdateTime=600~sec HASH_VAL=Match InteractiveStepOptions=(null) JobAcctGatherParams=(null) JobCompHost=(null)
JobCompLoc=(null) JobCompParams=(null) JobCompPort=0 JobCompType=(null) JobCompUser=(null) JobSubmitPlugins=(null)
LogTimeFormat=rfc3339_ms MCSParameters=(null) MCSPlugin=(null) NodeFeaturesPlugins=(null) PlugStackConfig=(null)
PluginDir=(null) PrEpParameters=(null) PrEpPlugins=(null) PriorityParameters=(null)
PrioritySiteFactorParameters=(null) PrioritySiteFactorPlugin=(null) RequeueExit=(null) RequeueExitHold=(null)
ResvEpilog=(null) ResvOverRun=0~min ResvProlog=(null) ScronParameters=(null) SlurmSchedLogFile=(null)
SlurmSchedLogLevel=0 SlurmctldAddr=(null) SlurmctldPrimaryOffProg=(null) SlurmctldPidFile=(null)
SlurmctldPrimaryOnProg=(null) SlurmctldSyslogDebug=(null) SlurmdPidFile=(null) SlurmdParameters=(null)
SlurmdSyslogDebug=(null) SlurmdUser=root(0) SrunEpilog=(null) SrunPortRange=0-0 SrunProlog=(null)
SwitchParameters=(null) SwitchType=(null) TCPTimeout=2~sec TreeWidth=16 UsePam=No VSizeFactor=0~percent
LaunchType=launch/slurm X11Parameters=(null)
`

// withSlurmKeys adds those of which the configuration has none.
func withSlurmKeys(list []model.KV) []model.KV {
	have := map[string]bool{}
	for _, k := range list {
		have[k.Key] = true
	}
	for _, w := range strings.Fields(slurmKeys) {
		if key, value, _ := strings.Cut(w, "="); !have[key] {
			list = append(list, model.KV{Key: key, Value: strings.ReplaceAll(value, "~", " ")})
		}
	}
	return list
}
