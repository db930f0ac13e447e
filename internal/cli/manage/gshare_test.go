package manage

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

func TestShare(t *testing.T) {
	f := clitest.New(t, Gshare)
	f.Shares = []proto.ShareRow{
		{Account: "root", NormShares: 1, RawUsage: 4000, NormUsage: 1, Used: 1, LevelFS: 1},
		{Account: "physics", Parent: "root", Depth: 1, RawShares: 1, NormShares: 0.5, RawUsage: 1000, NormUsage: 0.25,
			Used: 0.25, LevelFS: 2},
		{Account: "physics", Parent: "physics", User: "alice", UID: 1001, Depth: 2, RawShares: 1, NormShares: 1,
			RawUsage: 1000, NormUsage: 0.25, Used: 1, LevelFS: 1, FairShare: 1,
			TRESMins: []model.TRESCount{{TRES: "cpu", Count: 16}}, ID: 4},
		{Account: "biology", Parent: "root", Depth: 1, RawShares: 1, UseParent: true, NormShares: 0.5, RawUsage: 3000,
			NormUsage: 0.75, Used: 0.75, LevelFS: math.Inf(1)},
	}
	f.Want(`Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare 
-------------------- ---------- ---------- ----------- ----------- ------------- ---------- 
root                                          0.000000        4000      1.000000            
 physics                                 1    0.500000        1000      0.250000            
  physics                 alice          1    1.000000        1000      1.000000   1.000000 
 biology                            parent    0.500000        3000      0.750000            
`, "", 0, "sshare", "-a", "-A")
	// vpenso, snakemake, and what people type
	f.Want("root|\n physics|\n  physics|1.000000\n biology|\n", "", 0, "sshare", "-n", "-P", "-o", "account,fairshare")
	f.Want("physics              \n", "", 0, "sshare", "-U", "--format", "Account%-20", "--noheader")
	f.Want("physics|alice||1|1.000000|1000|0.250000|1.000000|1.000000|1.000000||cpu=0,mem=0,energy=0,node=0,"+
		"billing=0,fs/disk=0,vmem=0,pages=0|\n", "", 0, "sshare", "-lUmnp",
		"-u", "root")
	f.Want("root|1.000000|demo|\n physics|0.250000|demo|\n biology|0.750000|demo|\n", "", 0, "sshare", "-n", "-p", "-o",
		"A,Eff", "-o", "clu", "-u", "")
	f.Want(`Account             Cluster             EffectvUsage        FairShare          
GrpTRESMins         GrpTRESRaw          ID                  LevelFS            
NormShares          NormUsage           Partition           RawShares          
RawUsage            TRESRunMins         User               
`, "", 0, "sshare", "-e")
	f.Want("", "sshare: fatal: Invalid field requested: \"foo\"\n", 1, "sshare", "-o", "foo")
	const none = ",mem=0,energy=0,node=0,billing=0,fs/disk=0,vmem=0,pages=0\n"
	f.Want("root|cpu=0"+none+" physics|cpu=0"+none+"  physics|cpu=16"+none+" biology|cpu=0"+none, "",
		0, "sshare", "-nPo", "account,GrpTRESRaw", "-u",
		"no-such-user")
	out, _, rc := f.Run("sshare", "--json")
	var list struct {
		Shares struct {
			Shares []struct {
				Name      string
				Fairshare struct{ Level struct{ Infinite bool } }
				Type      []string
			}
			Total int `json:"total_shares"`
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || rc != 0 ||
		!strings.Contains(out, `"data_parser/v0.0.43"`) || list.Shares.Total != 4 ||
		list.Shares.Shares[2].Type[0] != "USER" || !list.Shares.Shares[3].Fairshare.Level.Infinite {
		t.Errorf("%v %+v\n%s", err, list, out)
	}
	f.Want("root|\n physics|2.000000\n  physics|1.000000\n biology|inf\n", "", 0, "sshare", "-nPo", "account,LevelFS")
	f.Fail[proto.KindShares] = rpc.Errorf(proto.CodeInternal, "Unable to contact slurm controller (connect failure)")
	f.Want("", "sshare: error: Unable to contact slurm controller (connect failure)\n", 1, "sshare")
}
