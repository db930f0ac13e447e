package dbd

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"time"

	"gbatch/internal/model"
)

// This file owns the bytes in the database: keys, index keys and rows. All numbers are big-endian, so that bbolt sorts
// them correctly. Every key of every bucket ends with the ref of its record.
//
//	ref        series(2) job(4) attempt(4)
//	rec        ref                                  -> row
//	end        span(1) end(8) ref                   -> nothing; finished records only
//	user       uid(4) span(1) end(8) ref            -> nothing; span and end are 0 in the live shelf
//	array      series(2) array(4) ref               -> nothing; records of arrays' tasks and arrays' own
//	row        format(1) crc(4) head(40) record     record: model.Record in msgpack
//
// span is the time from a job's submission to its end, in powers of four. A job that existed in a window either ended
// in it or outlived it by less than its span. So a query reads a window's records and few others, however long the
// history is.

// ref names a record: series is one numbering of jobs (one history of a cluster). In attempt, the upper bits count the
// sizes that the attempt had before the one of the record.
type ref struct {
	series  uint16
	job     model.JobID
	attempt uint32
}

const refLen = 10

// sizeShift is where the number of the size begins in ref.attempt: attempts are below, sizes at most model.MaxSizes.
const sizeShift = 20

// refOf names a record within its series.
func refOf(r *model.Record) ref {
	return ref{job: r.Job, attempt: r.Attempt&(1<<sizeShift-1) | min(r.Size, model.MaxSizes)<<sizeShift}
}

// ofAttempt gives the attempt's first ref, under which its steps are.
func (r ref) ofAttempt() ref {
	r.attempt &= 1<<sizeShift - 1
	return r
}

// order sorts a job's attempts, and the sizes of each.
func (r ref) order() uint64 {
	return uint64(r.ofAttempt().attempt)<<32 | uint64(r.attempt>>sizeShift)
}

func (r ref) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, r.series)
	b = binary.BigEndian.AppendUint32(b, uint32(r.job))
	return binary.BigEndian.AppendUint32(b, r.attempt)
}

// lastRef reads the ref that key ends with. ok is false if key is too short, which happens only in a damaged file.
func lastRef(key []byte) (r ref, ok bool) {
	if len(key) < refLen {
		return ref{}, false
	}
	b := key[len(key)-refLen:]
	return ref{
		series:  binary.BigEndian.Uint16(b),
		job:     model.JobID(binary.BigEndian.Uint32(b[2:])),
		attempt: binary.BigEndian.Uint32(b[6:]),
	}, true
}

func jobPrefix(series uint16, job model.JobID) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, series), uint32(job))
}

func arrayKey(series uint16, array model.JobID, r ref) []byte {
	b := make([]byte, 0, 6+refLen)
	b = binary.BigEndian.AppendUint16(b, series)
	b = binary.BigEndian.AppendUint32(b, uint32(array))
	return r.append(b)
}

func endKey(h *head, r ref) []byte {
	return r.append(appendSpanEnd(make([]byte, 0, 9+refLen), h))
}

func userKey(h *head, r ref) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 13+refLen), h.uid)
	return r.append(appendSpanEnd(b, h))
}

func appendSpanEnd(b []byte, h *head) []byte {
	if !h.ended() {
		return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint64(append(b, spanOf(h.submit, h.end)), uint64(h.end))
}

// after gives the smallest key that is greater than every key with this prefix; nil if there is none.
func after(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}

// maxSpan is the largest span between two moments of clampTime.
const maxSpan = 24

// spanOf gives k such that end-submit is less than spanMS(k).
func spanOf(submit, end model.Time) byte {
	return byte((bits.Len64(uint64(max(0, end-submit))) + 1) / 2)
}

func spanMS(k byte) model.Time { return 1 << (2 * k) }

// maxTime ends the year 9999. Times outside of [0, maxTime] have no month.
const maxTime model.Time = 253402300799999

func clampTime(t model.Time) model.Time { return min(max(0, t), maxTime) }

// monthOf names the month (UTC) of t; names sort by time.
func monthOf(t model.Time) string { return time.UnixMilli(int64(clampTime(t))).UTC().Format("2006-01") }

// monthSpan gives a month's first millisecond and that of the next month.
func monthSpan(name string) (from, to model.Time, err error) {
	t, err := time.Parse("2006-01", name)
	if err != nil {
		return 0, 0, fmt.Errorf("a shelf is named %q, which is no month: %w", name, err)
	}
	return model.Time(t.UnixMilli()), model.Time(t.AddDate(0, 1, 0).UnixMilli()), nil
}

// head has the fields that queries use most. It is in front of the record so that most rows need no decoding.
type head struct {
	submit, start, end model.Time // end 0: the job has not ended
	uid, gid           uint32
	array              model.JobID
	task               int32
	state              model.JobState
	waits              bool // it never began to wait for resources only: held, or with a dependency or a begin time
}

func (h *head) ended() bool { return h.end != 0 }

// headOf makes a record's head. A record with a final state or an end time has ended; without a usable end time, its
// latest other time counts as its end.
func headOf(r *model.Record) head {
	h := head{
		submit: clampTime(r.Submit), start: clampTime(r.Start), uid: r.UID, gid: r.GID,
		array: r.ArrayID, task: r.Task, state: r.State, waits: r.Eligible == 0 && r.Start == 0,
	}
	if r.Het != nil { // components are found like the tasks of an array
		h.array, h.task = r.Het.ID, model.NoTask
	}
	if r.End != 0 || r.State.Finished() {
		h.end = clampTime(r.End)
		if h.end == 0 {
			h.end = max(h.submit, h.start, 1)
		}
	}
	return h
}

// Offsets in a row. The head ends with the state's byte, one that is 1 for a job that was never eligible (rows of older
// versions have 0), and two bytes that are zero and unused.
const (
	rowFormat = 1
	rowCRC    = 1
	rowHead   = 5
	rowBody   = rowHead + 44
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newRow builds r's row from its encoded record.
func newRow(h *head, record []byte) []byte {
	b := make([]byte, rowHead, rowBody+len(record))
	b[0] = rowFormat
	b = binary.BigEndian.AppendUint64(b, uint64(h.submit))
	b = binary.BigEndian.AppendUint64(b, uint64(h.start))
	b = binary.BigEndian.AppendUint64(b, uint64(h.end))
	b = binary.BigEndian.AppendUint32(b, h.uid)
	b = binary.BigEndian.AppendUint32(b, h.gid)
	b = binary.BigEndian.AppendUint32(b, uint32(h.array))
	b = binary.BigEndian.AppendUint32(b, uint32(h.task))
	waits := byte(0)
	if h.waits {
		waits = 1
	}
	b = append(b, byte(h.state), waits, 0, 0)
	return append(b, record...)
}

// seal writes the checksum, which covers the key too, so a row under a wrong key is detected.
func seal(row []byte, r ref) { binary.BigEndian.PutUint32(row[rowCRC:], rowSum(row, r)) }

func rowSum(row []byte, r ref) uint32 {
	var key [refLen]byte
	return crc32.Update(crc32.Checksum(r.append(key[:0]), castagnoli), castagnoli, row[rowHead:])
}

// parseRow gives a row's head and encoded record (a part of row). ok is false for a damaged row.
func parseRow(row []byte, r ref) (h head, record []byte, ok bool) {
	if len(row) < rowBody || row[0] != rowFormat || binary.BigEndian.Uint32(row[rowCRC:]) != rowSum(row, r) {
		return head{}, nil, false
	}
	b := row[rowHead:]
	h = head{
		submit: model.Time(binary.BigEndian.Uint64(b)),
		start:  model.Time(binary.BigEndian.Uint64(b[8:])),
		end:    model.Time(binary.BigEndian.Uint64(b[16:])),
		uid:    binary.BigEndian.Uint32(b[24:]),
		gid:    binary.BigEndian.Uint32(b[28:]),
		array:  model.JobID(binary.BigEndian.Uint32(b[32:])),
		task:   int32(binary.BigEndian.Uint32(b[36:])),
		state:  model.JobState(b[40]),
		waits:  b[41] == 1,
	}
	return h, row[rowBody:], true
}
