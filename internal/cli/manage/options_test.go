package manage

import (
	"testing"

	"gbatch/internal/cli/clitest"
)

func TestManageOptions(t *testing.T) {
	clitest.CheckOptions(t, "gacctmgr", (&manage{Env: clitest.NoEnv()}).options())
	clitest.CheckOptions(t, "gprio", (&prio{Env: clitest.NoEnv()}).options())
	clitest.CheckOptions(t, "gshare", (&share{Env: clitest.NoEnv()}).options())
}
