package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimInterrupted: Ctrl-C is said in words.
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
