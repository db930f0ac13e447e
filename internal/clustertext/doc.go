// Package clustertext says what a cluster tells of itself in Slurm's words: controllers, licenses,
// shares and usage, statistics of the leader. Package jobtext does it for jobs, records and nodes.
//
//	controllers.go   controllers and licenses: JSON of scontrol ping and show licenses
//	pools.go         partitions as pools: ginfo --pools
//	share.go         shares and usage of accounts and users: sshare's columns and JSON
//	money.go         balances, invoices and costs: JSON of greport's
//	history.go       samples over time: headings and values
//	statistics.go    the leader's statistics: sdiag's text and JSON
//
// The objects of --json (PingJSON, LicenseJSON ...) are tables of fields, of which slurmjson makes
// every version; testdata/json.txt holds what programs can rely on. It knows no client, no command
// and no terminal, so that commands and an HTTP server can use it.
package clustertext
