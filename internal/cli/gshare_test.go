package cli

import (
	"testing"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

func TestShare(t *testing.T) {
	f := newFake(t)
	f.shares = []proto.ShareRow{
		{Account: "root", NormShares: 1, RawUsage: 4000, NormUsage: 1, FairShare: 1},
		{Account: "physics", Parent: "root", Depth: 1, RawShares: 1, NormShares: 0.5, RawUsage: 1000, NormUsage: 0.25, FairShare: 0.707107},
		{Account: "physics", Parent: "physics", User: "alice", UID: 1001, Depth: 2, RawShares: 1, NormShares: 0.5, RawUsage: 1000, NormUsage: 0.25, FairShare: 0.707107},
		{Account: "biology", Parent: "root", Depth: 1, RawShares: 1, NormShares: 0.5, RawUsage: 3000, NormUsage: 0.75, FairShare: 0.353553},
	}
	f.want(`Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare 
-------------------- ---------- ---------- ----------- ----------- ------------- ---------- 
root                                          0.000000        4000      1.000000            
 physics                                 1    0.500000        1000      0.250000   0.707107 
  physics                 alice          1    0.500000        1000      0.250000   0.707107 
 biology                                 1    0.500000        3000      0.750000   0.353553 
`, "", 0, "sshare", "-a", "-A")
	// vpenso, snakemake, and what people type
	f.want("root|\n physics|0.707107\n  physics|0.707107\n biology|0.353553\n", "", 0, "sshare", "-n", "-P", "-o", "account,fairshare")
	f.want("physics              \n", "", 0, "sshare", "-U", "--format", "Account%-20", "--noheader")
	f.want("physics|alice||1|0.500000|1000|0.250000|0.250000|0.707107|2.000000|||\n", "", 0, "sshare", "-lUmnp", "-u", "root")
	f.want("root|1.000000|demo|\n physics|0.250000|demo|\n biology|0.750000|demo|\n", "", 0, "sshare", "-n", "-p", "-o", "A,Eff", "-o", "clu", "-u", "")
	f.want(`Account             Cluster             EffectvUsage        FairShare          
GrpTRESMins         GrpTRESRaw          ID                  LevelFS            
NormShares          NormUsage           Partition           RawShares          
RawUsage            TRESRunMins         User               
`, "", 0, "sshare", "-e")
	f.want("", "sshare: fatal: Invalid field requested: \"foo\"\n", 1, "sshare", "-o", "foo")
	f.want("", "sshare: error: Invalid user id: no-such-user\n", 1, "sshare", "-u", "no-such-user")
	f.want("", "sshare: error: --json is not supported by gbatch yet: use --parsable2\n", 1, "sshare", "--json")
	f.fail[proto.KindShares] = rpc.Errorf(proto.CodeInternal, "Unable to contact slurm controller (connect failure)")
	f.want("", "sshare: error: Unable to contact slurm controller (connect failure)\n", 1, "sshare")
}
