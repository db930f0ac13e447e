// Package report is greport (sreport): usage of a cluster, its accounts, users, jobs and
// reservations over time.
//
// gdbd sums (proto.ReportRequest); this package picks, sorts and prints. Titles, headings and words
// are Slurm's.
//
//	greport.go     options, words and the window
//	reports.go     the reports, with sizes.go (jobs by size) and wckeys.go
//	money.go       usage, invoice and balance
//	text.go        times in their formats, columns
package report
