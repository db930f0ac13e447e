package queue

import (
	"testing"

	"gbatch/internal/cli/clitest"
)

func TestQueueOptions(t *testing.T) {
	clitest.CheckOptions(t, "gqueue", (&queue{Env: clitest.NoEnv()}).options())
	clitest.CheckOptions(t, "gcancel", (&cancel{Env: clitest.NoEnv()}).options())
}
