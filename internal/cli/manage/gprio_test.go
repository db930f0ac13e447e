package manage

import (
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func TestPrio(t *testing.T) {
	f := clitest.New(t, Gprio)
	f.Prio = &proto.PrioChunk{
		Weights: model.Priority{Multifactor: true, WeightAge: 1000, WeightFairShare: 10000,
			WeightTRES: []model.TRESWeight{{TRES: "gres/gpu", Micros: 50e6, Per: 1}}},
		Rows: []proto.PrioRow{
			{Job: 9, JobText: "9_[1-4]", User: "bob", Account: "physics", QOSName: "high", PartName: "gpu", Priority: 10600,
				Age: 550.9, AgeN: 0.5509,
				FairShare: 10000, FairN: 1, Nice: 1, TRES: []float64{50}, TRESN: []float64{1}},
			{Job: 7, JobText: "7", User: "ann", Account: "biology", QOSName: "normal", PartName: "cpu", Priority: 5001, Age: 1,
				AgeN: 0.001, FairShare: 5000, FairN: 0.5,
				TRES: []float64{0}, TRESN: []float64{0}},
		}}
	f.Want(`          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE                 TRES
              7 cpu             5001          0          1       5000                     
        9_[1-4] gpu            10600          0        550      10000          gres/gpu=50
`, "", 0, "sprio")
	f.Want(`          JOBID PARTITION PRIORITY   AGE        FAIRSHARE  TRES                
              7 cpu       0.00000116 0.0010000  0.5000000                      
        9_[1-4] gpu       0.00000246 0.5509000  1.0000000  gres/gpu=1.00       
`, "", 0, "gprio", "-n")
	f.Want(`          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE                 TRES
        Weights                               1       1000      10000          gres/gpu=50
`, "", 0, "sprio", "-w")
	f.Want("        9_[1-4] gpu            bob      10600          0        550          0      10000          0        "+
		"  0          0           1          gres/gpu=50\n"+
		"              7 cpu            ann       5001          0          1          0       5000          0          0   "+
		"       0           0                     \n",
		"", 0, "sprio", "-h", "-l", "-S", "-Y")
	f.Want("7|biology|demo\n9_[1-4]|physics|demo\n", "", 0, "sprio", "-ho", "%i|%o|%c", "-S", "u")
	f.Want("", "sprio: error: Invalid sort specification: Z\n", 1, "sprio", "-S", "Z")
	f.Prio.Weights.Multifactor = false
	f.Want("", "You are not running a supported priority plugin\n(priority/basic).\n"+
		"Only 'priority/multifactor' is supported.\n", 0, "sprio")
}
