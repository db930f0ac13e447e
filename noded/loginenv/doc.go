// Package loginenv is the process that a job with --get-user-env begins as: it asks the user's
// shell for the variables that the shell has after it has read its start files, ends everything
// that the start files have left running, and becomes the job's script. gshim starts it in place
// of the script, so the start files run where the script does: as its user, in its control group,
// with its devices, files, limits and mount namespace, after the prolog, and never longer than the
// job.
//
// Start files may hang or fail: a shell has a time limit, and a job without a login environment
// runs all the same, with a line in its standard error.
//
// order.go is what gnoded says, main.go the process, shell.go the shell and its variables.
//
// It owns nothing else: gnoded says what to ask (Order), and what the variables may not change.
package loginenv
