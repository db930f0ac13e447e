// Package format has the output languages of the query commands, over any type of row.
//
//	squeue, sinfo, sprio  -o  "%.18i %9P|%j"       Language.Template  a printf-like template
//	squeue, sinfo         -O  "JobID:10,Name:.8|"  Language.Columns   fields with sizes and suffixes
//	sacct, sshare, sacctmgr   "jobid,state%-20"    Language.Table     a table, or parsable lines
//
// A command declares its fields once, as a Language; compiling a user's format gives a Printer,
// which appends lines to a buffer. Widths count runes. Text that is no field is copied as it is:
// leading blanks, quotes, braces, control characters.
//
// What the three do with sizes was compared with the commands of Slurm 22.05: in -o and -O a size
// both pads and cuts, the heading too; no size is the value's own width. In a table a value that is
// too long ends with "+", a heading is cut without one.
//
// It knows no job, node or record, chooses no default format and prints nothing by itself.
//
// Files: language.go and template.go (-O and -o), printer.go, sort.go, table.go.
package format
