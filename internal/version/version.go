// Package version holds the two versions that commands print: gbatch's own and the Slurm release whose
// command contract it follows.
package version

// Version is gbatch's own version, printed under the g-names. The Makefile overrides it with -ldflags -X.
var Version = "0.1.0-dev"

// Slurm is the release of Slurm whose command contract the Slurm names follow (CLI.md section 0.1). Tools parse
// it: a major version above 25 makes some of them ask gacct for fields that do not exist here.
const Slurm = "25.05.0"
