package request

import (
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/cli/env"
)

func TestSubmitOptions(t *testing.T) {
	clitest.CheckOptions(t, "gsubmit", (&Submission{}).Options((&env.Env{}).ReadDate))
}
