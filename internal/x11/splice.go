package x11

import (
	"io"
	"sync"

	"gbatch/internal/stepio"
)

const readBytes = 32 << 10

// Splice copies between the frames of a connection and a plain one until both ways have ended, or one is broken.
func Splice(c *stepio.Conn, plain io.ReadWriteCloser) {
	var ways sync.WaitGroup
	ways.Go(func() {
		buf := make([]byte, readBytes)
		for {
			n, err := plain.Read(buf)
			if n > 0 && c.Write(0, 0, buf[:n]) != nil {
				return
			}
			if err != nil {
				_ = c.Write(0, 0, nil) // the other side may be gone
				return
			}
		}
	})
	for {
		f, err := c.Read()
		if err != nil || len(f.Data) == 0 {
			break
		}
		if _, err := plain.Write(f.Data); err != nil {
			break
		}
	}
	_ = plain.Close() // X has no half-closed connections
	ways.Wait()
}
