// Package hostlist owns Slurm's two list notations: host lists such as
// "gpu-node[01-04,07],login" and index lists such as "0-3,7".
//
// It turns text into names and names into text, and does nothing else: no
// name is resolved, no file is read, no clock is asked.
//
// Grammar of a host list: names separated by commas or blanks. A name is text
// with any number (up to [MaxBrackets]) of bracketed range lists; text may
// follow a bracket ("rack[1-2]-ib"). A range is N or N-M. The width of N says
// how far its numbers are padded with zeros: "n[01-03]" is n01 n02 n03, while
// "n[1-03]" is n1 n2 n3. Several brackets multiply, the last one runs fastest.
//
// Three ways to write names as a list, because Slurm has three:
//
//   - [Compress] gives one canonical text for a set of hosts: prefixes in the
//     order in which they first appear, numbers ascending, each host once.
//   - [CompressInOrder] keeps order and repetitions (scontrol show hostlist).
//   - [CompressSorted] sorts everything and keeps repetitions (scontrol show
//     hostlistsorted, and the node lists that Slurm shows for jobs).
//
// Invariants, held by tests and fuzzing: Expand(Compress*(Expand(x))) has the
// hosts of Expand(x); Contains(x, h) says whether Expand(x) has h; no input
// makes a function panic or produce more than [MaxHosts] names.
//
// Where gbatch does better than Slurm 22.05 on purpose: text after a bracket
// is accepted, an unclosed bracket and "n[1-]" are errors and not hosts named
// "n]" and "n1", and numbers of more than 18 digits don't wrap around.
//
// Files: parse.go, expand.go, compress.go, indexes.go.
package hostlist
