package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimInterrupted: after Ctrl-C the error says that the simulation was interrupted.
func TestSimInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	cmd := simCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"--trace", filepath.Join("..", "..", "internal", "sim", "testdata", "small.swf")})
	if err := cmd.ExecuteContext(ctx); err == nil || !strings.HasPrefix(err.Error(), "interrupted;") {
		t.Error(err)
	}
}
