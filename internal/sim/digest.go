package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Digest gives the first 16 hex digits of the SHA-256 of "id start\n" over all jobs that ran, in (submit, file) order:
// equal digests are equal schedules.
func (o *Outcome) Digest() string {
	h := sha256.New()
	var b []byte
	for i := range o.Work.Jobs {
		if o.Start[i] == NoStart {
			continue
		}
		b = strconv.AppendInt(b[:0], o.Work.Jobs[i].ID, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, o.Start[i], 10)
		b = append(b, '\n')
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
