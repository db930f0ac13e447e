package boltcheck

import "testing"

func FuzzElements(f *testing.F) {
	f.Add(make([]byte, 4096), false)
	f.Fuzz(func(t *testing.T, page []byte, inline bool) {
		if len(page) >= pageHeader {
			_, _ = elements(nil, page, inline) // must not panic
		}
	})
}
