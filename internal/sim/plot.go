package sim

import "io"

// Plot writes an SVG.
func Plot(w io.Writer, o *Outcome, m *Metrics) error { return nil }
