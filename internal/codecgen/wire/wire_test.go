package wire

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// FuzzSkip: our Skip consumes exactly what msgpack's recursive one does.
func FuzzSkip(f *testing.F) {
	b, err := msgpack.Marshal(map[string]any{"a": []any{1, "x", nil, 2.5, map[string]any{}}, "b": []byte("zz")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x93, 0xd5, 1, 2, 3, 0xc7, 0, 9, 0xc0})
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := bytes.NewReader(b), bytes.NewReader(b)
		err1 := Skip(msgpack.NewDecoder(ours), 1)
		err2 := msgpack.NewDecoder(theirs).Skip()
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("ours %v, msgpack's %v", err1, err2)
		}
		if err1 == nil && ours.Len() != theirs.Len() {
			t.Fatalf("%d bytes left, msgpack leaves %d", ours.Len(), theirs.Len())
		}
	})
}
