// Package boltcheck checks a bbolt file before bbolt maps it, and shows what is in it. bbolt
// trusts its pages: on a torn or foreign page it panics in a goroutine of its own, or touches
// memory beyond the file, and no daemon can catch either. So every page that bbolt will follow is
// first read with plain reads: it must exist, have the type that its parent says, and stay within
// its bounds. These are the checks that bbolt makes when it looks for free pages, so it then finds
// no reason to panic.
//
// It owns no file and knows no content: gdbd and the raft log say what their entries must be.
//
// The layout is bbolt's file format, version 2 (bbolt's internal/common: page.go, meta.go,
// bucket.go), in the byte order of the machine. check.go has all of it.
package boltcheck
