package ctld

import (
	"context"
	"testing"
)

// TestClockEndsWithLeadership: after the end of a leadership the clock's loop does nothing more. Its sessions are gone
// then, so every node looks silent, and nothing that it proposes is taken: it would try for ever, and the controller
// could neither end nor lead again.
func TestClockEndsWithLeadership(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	new(Controller).clock(ctx) // it has nothing that it could look at
}
