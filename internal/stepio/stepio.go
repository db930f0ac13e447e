// Package stepio carries the input and output of a step's tasks between another host and the command that runs the
// step.
//
// It owns the frames and their encryption. It does not own the direction of connections (noded/steprelay dials, the
// command listens) or the use of the data.
//
// The command draws a key, and the nodes' daemons carry it over mutually authenticated connections. The key
// authenticates both sides here: each sends a salt, the keys of both directions are derived from all three
// (HMAC-SHA-256), and AES-GCM seals every frame with a counter as nonce. So no third party can read a frame, or change,
// repeat or omit one unnoticed.
//
// It must stay light, because commands and gshim use it: it imports neither net nor TLS.
//
// stepio.go has the frames and the connection, bound.go its limits, queue.go what waits for a task to read, labels.go
// the tasks' numbers before their lines.
package stepio

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"gbatch/internal/terminal"
)

const (
	// KeyBytes is the length of a key.
	KeyBytes = 32
	// MaxData bounds the data of one frame, bytes.
	MaxData = 64 << 10
	// AllRanks as a frame's rank means every task that has the stream.
	AllRanks int32 = -1
	// Terminal as a stream is the size of a task's terminal (SizeData), from the command. The terminal's data uses the
	// streams of input and output.
	Terminal uint8 = 3
	// Ended as a stream is how a task has ended (EndData), from its node.
	Ended uint8 = 4

	saltBytes  = 16
	frameHead  = 5 // head of the sealed text: stream and rank
	overhead   = 16
	streamHail = 255
	magic      = "gbatchIO"
)

// NewKey draws a key.
func NewKey() ([]byte, error) {
	key := make([]byte, KeyBytes)
	if _, err := unix.Getrandom(key, 0); err != nil {
		return nil, fmt.Errorf("draw a key: %w", err)
	}
	return key, nil
}

// Frame is a piece of one stream of one task. Data is valid until the next Read; empty data means the end of the
// stream.
type Frame struct {
	Stream uint8 // 0 standard input, 1 output, 2 error; Terminal, Ended
	Rank   int32
	Data   []byte
}

// Conn is one connection. One goroutine may read, any number write.
type Conn struct {
	rw      io.ReadWriter
	in, out cipher.AEAD
	got     uint64
	rbuf    []byte

	wmu  sync.Mutex
	sent uint64
	wbuf []byte
}

// Hail is the handshake of the connecting side; node is its index among the step's nodes.
func Hail(rw io.ReadWriter, key []byte, node int32) (*Conn, error) {
	var mine, theirs [saltBytes]byte
	if _, err := unix.Getrandom(mine[:], 0); err != nil {
		return nil, err
	}
	if _, err := rw.Write(append([]byte(magic), mine[:]...)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(rw, theirs[:]); err != nil {
		return nil, err
	}
	c, err := newConn(rw, key, mine[:], theirs[:], true)
	if err != nil {
		return nil, err
	}
	if err := c.Write(streamHail, node, nil); err != nil {
		return nil, err
	}
	f, err := c.Read()
	if err == nil && f.Stream != streamHail {
		err = errors.New("the other side is no step's command")
	}
	return c, err
}

// Answer is the handshake of the listening side.
func Answer(rw io.ReadWriter, key []byte) (c *Conn, node int32, err error) {
	hello := make([]byte, len(magic)+saltBytes)
	if _, err := io.ReadFull(rw, hello); err != nil {
		return nil, 0, err
	}
	if string(hello[:len(magic)]) != magic {
		return nil, 0, errors.New("a stranger")
	}
	var mine [saltBytes]byte
	if _, err := unix.Getrandom(mine[:], 0); err != nil {
		return nil, 0, err
	}
	if _, err := rw.Write(mine[:]); err != nil {
		return nil, 0, err
	}
	if c, err = newConn(rw, key, hello[len(magic):], mine[:], false); err != nil {
		return nil, 0, err
	}
	f, err := c.Read()
	if err != nil {
		return nil, 0, err
	}
	if f.Stream != streamHail {
		return nil, 0, errors.New("it did not say which node it is")
	}
	return c, f.Rank, c.Write(streamHail, 0, nil)
}

func newConn(rw io.ReadWriter, key, hailing, answering []byte, hails bool) (*Conn, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("a key of %d bytes", len(key))
	}
	seal := func(way string) (cipher.AEAD, error) {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(way)) // a hash never fails
		h.Write(hailing)
		h.Write(answering)
		block, err := aes.NewCipher(h.Sum(nil))
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(block)
	}
	there, err := seal("to the command")
	if err != nil {
		return nil, err
	}
	back, err := seal("to the node")
	if err != nil {
		return nil, err
	}
	c := &Conn{rw: rw, in: there, out: back}
	if hails {
		c.in, c.out = back, there
	}
	return c, nil
}

// SizeData writes a terminal's size as the data of a frame.
func SizeData(s terminal.Size) []byte {
	return binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, s.Rows), s.Cols)
}

// SizeOf reads the output of SizeData.
func SizeOf(data []byte) (s terminal.Size, ok bool) {
	if len(data) != 4 {
		return s, false
	}
	return terminal.Size{Rows: binary.LittleEndian.Uint16(data), Cols: binary.LittleEndian.Uint16(data[2:])}, true
}

// EndData writes a task's exit code and signal as the data of a frame.
func EndData(code, signal int32) []byte { return []byte{byte(code), byte(signal)} }

// EndOf reads the output of EndData.
func EndOf(data []byte) (code, signal int32, ok bool) {
	if len(data) != 2 || data[1] > 127 {
		return 0, 0, false
	}
	return int32(data[0]), int32(data[1]), true
}

func nonce(n uint64) []byte {
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], n)
	return b[:]
}

// Write sends data in one or more frames; empty data ends the stream.
func (c *Conn) Write(stream uint8, rank int32, data []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), MaxData)
		if err := c.write(stream, rank, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (c *Conn) write(stream uint8, rank int32, data []byte) error {
	plain := make([]byte, frameHead, frameHead+len(data))
	plain[0] = stream
	binary.LittleEndian.PutUint32(plain[1:], uint32(rank))
	plain = append(plain, data...)
	c.wbuf = binary.LittleEndian.AppendUint32(c.wbuf[:0], uint32(len(plain)+overhead))
	c.wbuf = c.out.Seal(c.wbuf, nonce(c.sent), plain, nil)
	c.sent++
	_, err := c.rw.Write(c.wbuf)
	return err
}

// Read waits for the next frame; io.EOF if the peer has closed between frames.
func (c *Conn) Read() (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.rw, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < frameHead+overhead || n > frameHead+overhead+MaxData {
		return Frame{}, fmt.Errorf("a frame of %d bytes", n)
	}
	if cap(c.rbuf) < int(n) {
		c.rbuf = make([]byte, n)
	}
	b := c.rbuf[:n]
	if _, err := io.ReadFull(c.rw, b); err != nil {
		return Frame{}, io.ErrUnexpectedEOF
	}
	plain, err := c.in.Open(b[:0], nonce(c.got), b, nil)
	if err != nil {
		return Frame{}, errors.New("a frame that the other side did not send")
	}
	c.got++
	return Frame{Stream: plain[0], Rank: int32(binary.LittleEndian.Uint32(plain[1:])), Data: plain[frameHead:]}, nil
}
