// Package rest serves the cluster over HTTP: the REST interface of Slurm's slurmrestd, its
// specification, health and metrics. It runs in every controller.
//
// It owns HTTP: listeners, TLS, limits, who a token or a socket speaks for, paths, and how
// requests and answers look. It does not own what they mean. A request becomes the same message
// (internal/proto) that a command would send, made as the user, and goes the way of a command's:
// the controller that answers it checks and carries it out. An answer's objects come from the
// tables that --json of the commands comes from (internal/jobtext, clustertext, acctmgr); an
// option of a job is read by the table of gsubmit's options.
//
// The frame:
//
//	server.go    Options, New, Run, Close; listeners and limits
//	door.go      plain HTTP and TLS on one port
//	caller.go    who asks: a token, or a process on this host
//	request.go   one request: its frame, its errors, lists that many share, the bytes of a user
//	faults.go    Slurm's numbers and names of errors, and HTTP's
//	rooms.go     paths that other packages answer; /livez, /readyz, /healthz
//	routes.go operations.go   the table of operations, finding one, and reading its parameters
//	leaving.go   what answers take in memory, and sending them while they are made
//	body.go object.go   reading what clients send
//	form.go      JSON or YAML, compressed or not
//	rowgroups.go rows of a list that were made before
//
// The operations:
//
//	jobs.go      jobs: lists, one, cancel
//	submit.go submission.go   a job's description becomes gsubmit's options, and they a request
//	jobedit.go   changes of a job
//	nodes.go     nodes, partitions, reservations, licenses, shares, diag, ping
//	changes.go   making, changing and removing nodes and reservations, reconfigure; lists of hosts
//	records.go   slurmdb's jobs: reading, and their comments
//	accounts.go  slurmdb's accounts, users, associations, QOS: reading
//	acctedit.go acctwho.go acctlimits.go   changing them, with gacctmgr's own verbs
//	spec.go      the OpenAPI specification of what is served
//
// # Invariants
//
//   - Every list that is kept, every body, header, connection and wait has a bound.
//   - Nobody is served a byte without a token that counts, or the kernel's word; /livez, /readyz,
//     /healthz, the specification and, unless the configuration says otherwise, metrics are open.
//   - No credential is ever taken from a cookie or a URL, so another site's page can't make a
//     browser ask in a user's name; without a token, on the socket, only requests count that no
//     other site can have sent (caller.go).
package rest
