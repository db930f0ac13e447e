package x11

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// entry makes one of an Xauthority file.
func entry(family uint16, fields ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, family)
	for _, f := range fields {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(f))), f...)
	}
	return b
}

// begin makes the first bytes of a client's connection.
func begin(order binary.AppendByteOrder, first byte, name, data string) []byte {
	b := order.AppendUint16([]byte{first, 0}, 11)
	b = order.AppendUint16(order.AppendUint16(b, 0), uint16(len(name)))
	b = append(order.AppendUint16(b, uint16(len(data))), 0, 0)
	for _, f := range []string{name, data} {
		b = append(append(b, f...), make([]byte, padded(len(f))-len(f))...)
	}
	return b
}

// TestFind: of several entries the one of this host's display counts.
func TestFind(t *testing.T) {
	file := bytes.Join([][]byte{
		entry(familyLocal, "far", "0", Name, "of another host "),
		entry(familyLocal, "here", "1", Name, "of number 1     "),
		entry(familyLocal, "here", "0", "XDM-AUTHORIZATION-1", "another way     "),
		entry(familyLocal, "here", "0", Name, "the right cookie"),
		entry(familyWild, "", "", Name, "of any display  "),
	}, nil)
	for _, x := range []struct {
		host   string
		number int
		want   string
	}{{"here", 0, "the right cookie"}, {"here", 1, "of number 1     "}, {"other", 0, "of any display  "},
		{"here", 7, "of any display  "}} {
		if got := string(Find(file, x.host, x.number)); got != x.want {
			t.Errorf("display %s:%d has %q, want %q", x.host, x.number, got, x.want)
		}
	}
	for n := range file {
		_ = Find(file[:n], "here", 9) // a file that is cut off is no reason to crash
	}
	if got := Find(File(20, []byte("0123456789abcdef")), "any", 20); string(got) != "0123456789abcdef" {
		t.Errorf("the file of a forwarded display has the cookie %q", got)
	}
}

// TestExchange: who has the display's cookie gets on with the real one, in the client's order of bytes; nobody else
// does.
func TestExchange(t *testing.T) {
	fake, real := strings.Repeat("f", CookieBytes), strings.Repeat("r", CookieBytes)
	for first, order := range map[byte]binary.AppendByteOrder{'B': binary.BigEndian, 'l': binary.LittleEndian} {
		got, err := Exchange(bytes.NewReader(begin(order, first, Name, fake)), []byte(fake), []byte(real))
		if want := begin(order, first, Name, real); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%c: %q, %v; want %q", first, got, err, want)
		}
		got, err = Exchange(bytes.NewReader(begin(order, first, Name, fake)), []byte(fake), nil)
		if want := begin(order, first, "", ""); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%c, without a real one: %q, %v; want %q", first, got, err, want)
		}
		for _, bad := range [][]byte{begin(order, first, Name, real), begin(order, first, Name, ""),
			begin(order, first, "", ""), begin(order, first, "OTHER-MAGIC-COOKI1", fake),
			begin(order, first, strings.Repeat("x", 60000), fake)} {
			if _, err := Exchange(bytes.NewReader(bad), []byte(fake), []byte(real)); !errors.Is(err, ErrProof) {
				t.Errorf("%c: %.60q: %v", first, bad, err)
			}
		}
	}
	if _, err := Exchange(strings.NewReader("GET / HTTP/1.1\r\n\r\n"), []byte(fake), nil); err == nil {
		t.Error("a web browser is taken for an X client")
	}
}
