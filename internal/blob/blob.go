// Package blob turns a script or an environment into a model.Blob and back: keyed by content, compressed when that
// makes it smaller. It is pure: no effects, so the state, the controller and the node share it.
package blob

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"gbatch/internal/model"
)

// minPack is the size in bytes from which compression is tried: below it the gain is less than the record around it.
const minPack = 512

var writers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		return nil // only for an invalid level; Make then stores the content plain
	}
	return w
}}

// Key gives the content's key: SHA-256 in hex; "" for no content.
func Key(content []byte) string {
	if len(content) == 0 {
		return ""
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Make packs content.
func Make(content []byte) model.Blob {
	b := model.Blob{Key: Key(content), Data: content, Size: int32(len(content))}
	if len(content) < minPack {
		return b
	}
	w, ok := writers.Get().(*flate.Writer)
	if !ok {
		return b
	}
	defer writers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	if _, err := w.Write(content); err != nil {
		return b
	}
	if err := w.Close(); err != nil || out.Len() >= len(content) {
		return b
	}
	b.Data, b.Packed = out.Bytes(), true
	return b
}

// ErrTooLarge is a blob that claims or unpacks to more than the caller's limit.
var ErrTooLarge = errors.New("content over the limit")

// Open unpacks b. Content over limit bytes is refused.
func Open(b *model.Blob, limit int) ([]byte, error) {
	if !b.Packed {
		if len(b.Data) > limit {
			return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(b.Data), limit)
		}
		return b.Data, nil
	}
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b.Data)), int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("unpack content %.12s: %w", b.Key, err)
	}
	if len(out) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return out, nil
}
