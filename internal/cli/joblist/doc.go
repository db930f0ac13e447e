// Package joblist reads a list of jobs as it streams in, job by job, into one record that is used again and again:
// gqueue over ten thousand jobs must not hold ten thousand jobs.
//
// It reads the bytes that proto.JobsChunk's codec writes, arrays of fields in the order of declaration, without going
// through the codec: that one allocates twenty times per job. Reader (reader.go) gives the jobs, wire.go reads values, fields.go says how each field is read; its place comes from
// the declaration, by name. A test decodes random jobs both ways and compares.
//
// Invariants: what it reads equals what the codec reads, save the fields listed at Reader.Each; any bytes give a result
// or an error, never a panic; memory follows the bytes that arrived.
package joblist
