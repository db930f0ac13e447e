package run

import (
	"testing"

	"gbatch/internal/cli/clitest"
)

func TestRunOptions(t *testing.T) {
	clitest.CheckOptions(t, "grun", (&run{Env: clitest.NoEnv()}).options())
}
