// Package backup has the form of a backup of gdbd's database: one file with a head that says what
// is in it, the database itself, and a checksum.
//
// It owns the bytes of that file. It doesn't know what a database looks like inside (package dbd
// checks that) and makes no connections.
//
//	gbatch accounting backup 1            a line that names the format
//	{"cluster":...}                       a line of JSON: Header
//	...                                   Header.Bytes bytes: the database file
//	sha256 <64 hex digits>                a line: the checksum of everything before it
//
// Limits: a head of 1 MiB. A file that was cut off or changed anywhere fails Check; nothing is
// taken from a file before that.
package backup
