package main

import (
	"strings"
	"testing"

	"gbatch/internal/up"
)

// TestWhatNext: whoever starts a cluster is told that its address has a page.
func TestWhatNext(t *testing.T) {
	const url = "http://127.0.0.1:6820"
	text := whatNext(&up.Cluster{Dir: "/tmp/c", Conf: "/tmp/c/gbatch.conf",
		Members: []up.Member{{Role: "gctld", HTTP: url}}}, "/tmp/c", true)
	for _, want := range []string{url, "the page, for a browser", "scontrol token", "REST", "gbatch down --dir /tmp/c"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
}
