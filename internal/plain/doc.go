// Package plain decides which texts may be shown: those that can't act on a terminal, end a line
// or turn the direction of writing.
//
// A text is plain if it is valid UTF-8 and has no control character (below U+0020, U+007F to
// U+009F), no line or paragraph separator (U+2028, U+2029) and no control of Unicode's
// bidirectional algorithm (the property Bidi_Control of UAX #9, with which one name can look like
// another). What users write is checked with Check where it comes in, and refused. What a program
// made of it, and what older versions have stored, goes through Line or Lines, which put a ? in
// place of each character that is not plain.
//
// It is about characters only: columns, quotes and separators are the caller's. It is a leaf.
package plain
