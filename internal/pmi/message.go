package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// message.go reads and writes the messages. One of PMI-1 is a line of NAME=VALUE words. One of PMI-2 is its length in
// six characters, and NAME=VALUE; pairs in which a semicolon of a value is doubled.

const (
	maxLine    = 8 << 10  // of PMI-1, bytes
	maxMessage = 64 << 10 // of PMI-2, bytes
	maxSpawn   = 1 << 20  // of a PMI-1 program's request to start others, bytes: it is only read past
	lengthHead = 6
)

var errTooLong = errors.New("a message is too long")

type message map[string]string

// readLine reads one message of PMI-1.
func readLine(r *bufio.Reader) (message, error) {
	text, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errTooLong
	case err != nil:
		return nil, err
	}
	m := message{}
	rest := strings.TrimSpace(string(text))
	for rest != "" {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			break
		}
		name = strings.TrimSpace(name)
		if name == "value" || name == "error_msg" { // the rest of the line: values may have blanks
			m[name] = after
			break
		}
		var value string
		value, rest, _ = strings.Cut(after, " ")
		m[name] = value
		rest = strings.TrimLeft(rest, " ")
	}
	return m, nil
}

// skipSpawn reads past a PMI-1 program's request to start others, which has several lines. It may be several requests:
// all are one.
func skipSpawn(r *bufio.Reader, first message) error {
	total, _ := strconv.Atoi(first["totspawns"])
	last, read := 1, 0
	for {
		text, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line := strings.TrimSpace(string(text))
		if read += len(text); read > maxSpawn {
			return errTooLong
		}
		if v, ok := strings.CutPrefix(line, "totspawns="); ok {
			total, _ = strconv.Atoi(v) // what is no number is no more than one
		}
		if line == "endcmd" {
			if last >= total {
				return nil
			}
			last++
		}
	}
}

// readMessage reads one message of PMI-2.
func readMessage(r *bufio.Reader) (message, error) {
	var head [lengthHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(head[:])))
	if err != nil || n < 0 || n > maxMessage {
		return nil, fmt.Errorf("a message of %q bytes", head)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return parsePairs(string(text)), nil
}

// parsePairs reads the pairs of PMI-2.
func parsePairs(text string) message {
	m := message{}
	for text != "" {
		name, rest, ok := strings.Cut(text, "=")
		if !ok {
			break
		}
		var value strings.Builder
		i := 0
		for ; i < len(rest); i++ {
			if rest[i] == ';' {
				if i+1 == len(rest) || rest[i+1] != ';' {
					break
				}
				i++
			}
			value.WriteByte(rest[i])
		}
		m[name] = value.String()
		text = rest[min(i+1, len(rest)):]
	}
	return m
}

// pairs writes a message of PMI-2: names and values in turn.
func pairs(words ...string) []byte {
	var b strings.Builder
	for i := 0; i+1 < len(words); i += 2 {
		b.WriteString(words[i] + "=" + strings.ReplaceAll(words[i+1], ";", ";;") + ";")
	}
	return fmt.Appendf(nil, "%*d%s", lengthHead, b.Len(), b.String())
}

// plainText makes a program's text fit for a line on a terminal.
func plainText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > MaxValue {
		s = s[:MaxValue]
	}
	return strings.TrimSpace(s)
}
