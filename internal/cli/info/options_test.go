package info

import (
	"testing"

	"gbatch/internal/cli/clitest"
)

func TestInfoOptions(t *testing.T) {
	clitest.CheckOptions(t, "ginfo", (&info{Env: clitest.NoEnv()}).options())
}
