// Package wire writes and reads structs as msgpack, both ways from one list of fields: a struct's
// Wire method has one line a field, in the order of declaration, and the same lines write and read.
//
//	func (x *TRESLimit) Wire(c *wire.C) {
//		wire.Text(c, &x.TRES, MaxName)
//		wire.Int(c, &x.Count)
//		wire.Bool(c, &x.Percent)
//	}
//
// A struct is an array of its fields. A reader takes the fields it knows, skips what follows and
// sets what is missing to zero, so what was written before a field existed and after both load.
// Therefore fields are append-only: never reorder, remove or retype one. To retire a field rename
// it to _ and make its line wire.Retired(c). Equal values give equal bytes: nil and empty lists are
// the same (read as nil), integers take their shortest form. The bytes of single values are
// vmihailenco/msgpack's, whose encoder and decoder do the work; the forms that nearly all values
// have (a byte, a short text, a plain number that lies in the buffer) are passed over in place,
// which takes half the time.
//
// The line of a text or a list ends with its limits. They hold both ways: who writes too much is
// told, before somebody else can't read it. A limit only ever grows, because logs that were written
// under it are read for ever. Nesting is bounded by the types: none contains itself
// (internal/archtest holds that, and that every field has its line).
//
// # What a message may cost
//
// AppendMessage and ReadMessage are for what strangers send. ReadMessage allocates at most Factor
// bytes for each byte of the message, and Floor: every allocation is charged before it is made. A
// message that says little with many fields (a list of a thousand empty texts takes 16 bytes of
// memory for each byte on the wire) would be refused, so whoever writes it pays: AppendMessage
// counts the same charges and puts nils behind the message until it is long enough. Marshal,
// Unmarshal, Reader and Writer are for what a daemon keeps for itself: no padding, no charge, but
// never more memory than a small multiple of what is really there.
//
// C keeps no state between messages and imports no clock and no socket, so that the pure packages
// may use it.
//
// Files: c.go (the two directions), values.go (a function for each kind of field), wire.go (what a
// message may cost).
package wire
