// Package wire writes and reads structs as msgpack, both ways from one list of fields: a struct's
// Wire method has one line per field, in the order of declaration, and the same lines write and
// read.
//
//	func (x *TRESLimit) Wire(c *wire.C) {
//		wire.Text(c, &x.TRES, MaxName)
//		wire.Int(c, &x.Count)
//		wire.Bool(c, &x.Percent)
//	}
//
// A struct is an array of its fields. A reader reads the fields it knows, skips further ones and
// sets missing ones to zero, so data from before and after the addition of a field loads. Therefore
// fields are append-only: never reorder, remove or retype one. To retire a field rename it to _ and
// make its line wire.Retired(c). Equal values give equal bytes: nil and empty lists are the same
// (read as nil), integers take their shortest form. The bytes of single values are
// vmihailenco/msgpack's, whose encoder and decoder do the work; the most frequent forms (a byte, a
// short text, a plain number within the buffer) are read and written in place, which takes half the
// time.
//
// The line of a text or a list ends with its limits. They hold both ways: writing too much is an
// error at the writer, before a reader can fail. A limit may only grow, because old logs must stay
// readable. Nesting is bounded by the types: none contains itself (internal/archtest checks this,
// and that every field has its line).
//
// # What a message may cost
//
// AppendMessage and ReadMessage are for messages between processes. ReadMessage allocates at most
// Factor bytes for each byte of the message, plus Floor: it charges every allocation before making
// it. A message with many empty values (a list of a thousand empty texts takes 16 bytes of memory
// for each byte on the wire) would be refused, so the writer pads it: AppendMessage counts the same
// charges and appends nils to the message until it is long enough. Within bounds a part of a
// message by itself; Held reads a message within another one without a copy. Marshal, Unmarshal,
// Reader and Writer are for a daemon's own data: no padding, no charge, but memory stays within a
// small multiple of the bytes that are really there.
//
// C keeps no state between messages and imports no clock and no socket, so that the pure packages
// may use it.
//
// Files: c.go (the two directions), values.go (a function for each kind of field), care.go (texts
// that could harm those who see them), wire.go (the cost of messages).
package wire
