// Package page serves the cluster as web pages at /: my jobs, one job, GPUs, the queue, shares, a
// timeline, and what operators look after. Every controller serves them.
//
// It owns HTML, its style and its script, who has signed in, and nothing of what it shows. A page
// asks with the messages of the commands (internal/proto), as its reader and with that user's
// rights, and writes the words that the commands write (internal/jobtext, clustertext, seff). A
// button sends the change that a command would send; the controller checks it.
//
//	page.go      Options, Page, the table of views; how a request becomes a page
//	caller.go    who reads: a token in a cookie, or a process on this host; forged requests
//	ask.go       questions that several views ask
//	text.go      what templates call
//	myjobs.go    my jobs; job.go one job
//	held.go      GPUs that jobs hold, and which a job can get
//	ended.go     the reader's jobs of the last days; node.go one node
//	gpus.go      all GPUs as one picture, and as a table
//	output.go    the end of a job's output, for its owner; an array as a whole
//	history.go   what was measured over time; chart.go draws it
//	queue.go     the queue, partitions, reservations
//	shares.go    fair share as a tree
//	timeline.go  what ran, runs and is planned
//	operators.go what is out of service, controllers, cycles; waste.go idle GPUs
//	act.go       buttons; submit.go the form for a job
//	live.go      the stream that tells a page to look again
//	assets/      templates, page.css and page.js, which are part of the program
//
// # Invariants
//
//   - A page works without its script, for reading and for its forms.
//   - Nothing is loaded from elsewhere; no style or script is inline; names and texts of users go
//     through html/template only, and in the script through textContent only.
//   - The cookie counts for these pages only, never for package rest. A change needs a word that
//     only a page of ours knows, and is refused when it comes from another site.
//   - Every list has an end: a page says how many rows it leaves out, and how to get them.
package page
