// Package sample holds every kind of field that codecgen knows. It exists to be compiled and round-tripped by the
// generator's tests; nothing else uses it.
package sample

import (
	"sync"
	"time"

	"gbatch/internal/codecgen/sample/other"
)

//go:generate go run gbatch/internal/codecgen

// Named types of this package.
type (
	Level int8
	Flags uint16
	Name  string
	Bits  []uint64
	Names []Name
	Hash  [hashLen]byte
	Env   map[string]string
	Alias = Level
)

const hashLen = 8

// All has one field of every kind.
//
//gbatch:codec
type All struct {
	Bool   bool
	I      int
	I8     int8
	I16    int16
	I32    int32
	I64    int64
	U      uint
	U8     uint8
	U16    uint16
	U32    uint32
	U64    uint64
	F      float64
	S      string
	Level  Level
	Alias  Alias
	Flags  Flags
	Name   Name
	hidden uint32
	Cache  map[int]int `codec:"-"`
	//lint:ignore U1000 a field that codecs leave alone
	mu                  sync.Mutex `codec:"-"`
	_                   uint32     // retired
	Bytes               []byte
	Hash                Hash
	Four                [4]uint32
	Strings             []string
	U64s                []uint64
	U32s                []uint32
	Matrix              [][]int16
	Bits                Bits
	Names               Names
	Inner               Inner
	InnerPtr            *Inner
	Inners              []Inner
	InnerPtrs           []*Inner
	Optional            *uint32
	OptName             *Name
	Env                 Env
	Counts              map[string]int64
	Sizes               map[string]uint64
	ByName              map[Name]Inner
	Lists               map[string][]string
	Wait                time.Duration   `codec:"int"`
	Waits               []time.Duration `codec:"int"`
	Month               time.Month      `codec:"int"`
	ID                  other.ID
	IDs                 other.IDs
	Set                 other.Set
	Point               other.Point
	PointPtr            *other.Point
	Points              []other.Point
	Hand                other.Hand
	OtherID, YetOtherID other.ID `codec:"uint"`
}

// Inner is a codec struct inside others.
//
//gbatch:codec
type Inner struct {
	A uint32
	B []string
}

// V1 is a record as a first version wrote it.
//
//gbatch:codec
type V1 struct {
	ID   uint64
	Name string
}

// V2 is V1 after two fields were appended.
//
//gbatch:codec
type V2 struct {
	ID    uint64
	Name  string
	Tags  []string
	Inner Inner
}

// V3 is V2 after Name was retired.
//
//gbatch:codec
type V3 struct {
	ID    uint64
	_     string
	Tags  []string
	Inner Inner
}

// Empty has no fields yet.
//
//gbatch:codec
type Empty struct{}
