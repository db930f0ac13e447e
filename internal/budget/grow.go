package budget

import "io"

// firstChunk is the first size of a buffer that grows, whatever length was claimed, bytes.
const firstChunk = 64 << 10

// ReadGrowing reads n bytes into buf's memory. The buffer grows with the bytes that arrive: n is only a claim. take is
// asked for each piece of new memory, bytes; nil: there is always enough.
func ReadGrowing(r io.Reader, buf []byte, n int, take func(more int64) error) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		if len(buf) == cap(buf) {
			size := min(n, max(firstChunk, 2*len(buf)))
			if take != nil {
				if err := take(int64(size - cap(buf))); err != nil {
					return buf, err
				}
			}
			grown := make([]byte, len(buf), size)
			copy(grown, buf)
			buf = grown
		}
		at := len(buf)
		k, err := io.ReadFull(r, buf[at:min(n, cap(buf))])
		buf = buf[:at+k]
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}
