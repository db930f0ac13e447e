package main

// What random submissions run, and how both clusters get idle between them.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The program of all tasks: tells where it runs, then does what its first argument says.
const taskScript = `#!/bin/sh
me=${SLURM_PROCID-batch}
echo "task $me is ${SLURM_LOCALID-} on ${SLURMD_NODENAME-}"
case ${1-} in
env) env | grep -E '^(SLURM|SBATCH|SALLOC|CUDA_|ROCR_|GPU_|ZE_)' | sed "s/^/$me /" ;;
exit) [ "$me" != "$2" ] || exit "$3" ;;
signal) [ "$me" != "$2" ] || kill -s "$3" $$ ;;
late) [ "$me" = "$2" ] || sleep "$3" ;;
in) echo "err of $me" >&2; sed "s/^/$me reads /" ;;
esac
`

// Shows the files that a line leaves, then shows and ends the jobs that wait, but for the one that others may depend
// on.
const lookScript = `#!/bin/sh
for f in *; do
    [ ! -f "$f" ] || { echo "file $f"; cat "$f"; }
done
for j in $(squeue -h -a -t PD -o %A | sort -nu | grep -vx "$HELD"); do
    scontrol -o show job "$j" | head -n 1
    scancel "$j"
done
true
`

// Waits until all is idle, and ends what is not by itself.
const idleScript = `
for i in $(seq 80); do
    q=$(squeue -h -a -o %A | grep -vx "$HELD")
    [ -n "$q" ] || [ "$(sinfo -h -p main -t idle -o %D)" != 4 ] || exit 0
    case $i in
    8|30|60) [ -z "$q" ] || scancel $q ;;
    40) scontrol update nodename=n[1-4] state=resume ;;
    esac
    sleep 0.1
done
echo "does not get idle: $q $(sinfo -h -N -o '%N %t' | tr '\n' ' ')"
`

// Ends the workload and puts the nodes back.
const emptyScript = `
scancel -f $(squeue -h -a -o %A | sort -u) 2>/dev/null
for r in later weekly; do scontrol delete reservationname=$r 2>/dev/null; done
scontrol update nodename=n[1-4] state=resume 2>/dev/null
scontrol update nodename=n3 weight=5
true
`

// makeTasks writes the programs, ends the workload, and submits on both the job that others depend on.
func (f *fuzz) makeTasks() error {
	// Users other than root run them too.
	if err := os.Chmod(f.work, 0o755); err != nil {
		return err
	}
	probes := "0 " + f.work + "/probe where\n* " + f.work + "/probe exit 2 7\n"
	for name, text := range map[string]string{"probe": taskScript, "look": lookScript, "probes": probes} {
		if err := os.WriteFile(filepath.Join(f.work, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	for _, s := range []*side{&f.real, &f.ours} {
		s.dirs = filepath.Join(f.work, s.name)
		s.env = []string{"PROBE=" + f.work + "/probe", "PROBES=" + f.work + "/probes", "LOOK=" + f.work + "/look"}
		s.sh(emptyScript)
		id := strings.TrimSpace(s.sh("cd /tmp && sbatch --parsable -H -o /dev/null --wrap true"))
		s.env = append(s.env, "HELD="+id)
		if text := s.sh(idleScript); text != "" {
			return fmt.Errorf("%s: %s", s.name, text)
		}
	}
	return nil
}

// submit compares one submission; each side begins in an empty directory, and the files that are there afterwards
// count.
func (f *fuzz) submit(seed uint64) {
	f.line(submissions, seed)
	var both sync.WaitGroup
	for _, s := range []*side{&f.real, &f.ours} {
		both.Go(func() {
			if text := s.sh(idleScript); text != "" {
				fmt.Fprintf(os.Stderr, "%s after submission %d: %s", s.name, seed, text)
			}
		})
	}
	both.Wait()
}
