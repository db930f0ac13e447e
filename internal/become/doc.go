// Package become turns a daemon that root starts into one of SlurmUser, and keeps its memory from
// others.
//
// gctld and gdbd need none of root's rights once their directories are there. Daemon makes what is
// missing for SlurmUser, says which command gives it what belongs to others, and gives up root for
// good: user, group, supplementary groups and all capabilities, of every thread. Nothing may have
// been opened in the daemon's directories before.
//
// gnoded and gshim stay root: they start jobs as their users.
package become
