package request

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// Parts of GPUs: --gpus=0.5 and --gres=gpu:0.5 ask for half of a GPU's shards.

// parsePart reads a number below 1 such as 0.5 as thousandths. ok is false for whole numbers and for what is no number;
// err tells of numbers that are no part of one GPU.
func parsePart(word string) (milli int32, ok bool, err error) {
	if !strings.Contains(word, ".") {
		return 0, false, nil
	}
	f, ferr := strconv.ParseFloat(word, 64)
	if ferr != nil {
		return 0, false, nil // a type, such as 1g.10gb
	}
	milli = int32(min(max(f, 0), 1)*1000 + 0.5)
	if f >= 1 || f < 0 || milli < 1 || milli > 999 {
		return 0, true, &getopt.TextError{Text: "Invalid generic resource (gres) specification: '" + word +
			"' GPUs: a part is of one GPU, more than 0 and less than 1; write 0.5, or a whole number of GPUs"}
	}
	return milli, true, nil
}

// settleShares makes of shares what the controller knows: they are counted by node, and a part of a GPU for the whole
// job is on one node.
func (s *Submission) settleShares() error {
	sp := &s.Spec
	for i := range sp.Gres {
		g := &sp.Gres[i]
		if g.Milli == 0 {
			continue
		}
		switch g.Per {
		case model.PerTask:
			return fmt.Errorf("--gpus-per-task=%s: a job's shares are of one GPU on each node; use --gpus=%s for the job, or "+
				"--gpus-per-node=%s", jobtext.PartText(g.Milli), jobtext.PartText(g.Milli), jobtext.PartText(g.Milli))
		case model.PerJob:
			if sp.MaxNodes > 1 {
				return fmt.Errorf("--gpus=%s is part of one GPU, and --nodes asks for several nodes; use --gpus-per-node=%s",
					jobtext.PartText(g.Milli), jobtext.PartText(g.Milli))
			}
			sp.MinNodes, sp.MaxNodes = 1, 1
		}
		g.Per = model.PerNode
	}
	return nil
}
