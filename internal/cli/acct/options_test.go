package acct

import (
	"testing"

	"gbatch/internal/cli/clitest"
)

func TestAccountOptions(t *testing.T) {
	clitest.CheckOptions(t, "gacct", (&account{Env: clitest.NoEnv()}).options())
	clitest.CheckOptions(t, "gseff", (&seffCall{Env: clitest.NoEnv()}).options())
	clitest.CheckOptions(t, "gstat", (&statCall{Env: clitest.NoEnv()}).options())
}
