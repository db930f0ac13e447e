package request

import (
	"testing"
	"time"

	"gbatch/internal/cli/clitest"
)

func TestSubmitOptions(t *testing.T) {
	clitest.CheckOptions(t, "gsubmit", (&Submission{}).Options(time.Now))
}
