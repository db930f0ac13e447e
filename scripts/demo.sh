#!/usr/bin/env bash
# The main job on a real cluster on this machine: starts one, submits etc/examples, watches the queue, shows each job's
# output and the accounting, and takes it all down again. `make demo` builds first.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$top/bin
if [ ! -x "$bin/gbatch" ]; then
    make --no-print-directory -C "$top" build
fi
for v in ${!SLURM*} ${!SBATCH*} ${!SQUEUE*} ${!SACCT*} ${!SINFO*}; do unset "$v"; done # no other cluster's settings

work=$(mktemp -d "${TMPDIR:-/tmp}/gbatch-demo.XXXXXX")
chmod 755 "$work"
dir=$work/demo
export GBATCH_CONF=$dir/gbatch.conf PATH=$bin:$PATH
begin=$SECONDS

finish() {
    status=$?
    trap - EXIT INT TERM
    if [ -e "$dir/up.json" ]; then
        say "Taking the cluster down"
        gbatch down --dir "$dir" | sed "s|; its state stays in .*|; the demo removes its files|" || status=1
    fi
    cd /
    rm -rf "$work"
    if [ "$status" = 0 ]; then
        printf '\nThat took %d s. `bin/gbatch up` starts a cluster that stays.\n' $((SECONDS - begin))
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }
run() { # shows a command and runs it
    printf '%s$ %s%s\n' "$bold" "$*" "$plain"
    "$@"
}

gpus=0
if [ -d /proc/driver/nvidia/gpus ]; then
    gpus=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 | wc -l)
fi
if [ "$gpus" -gt 0 ]; then
    say "A cluster of this machine, with its $gpus GPUs"
    run gbatch up --dir "$dir" --detach | sed '/^$/,$d'
else
    say "A cluster of two virtual nodes (this machine has no NVIDIA GPU: each gets four stand-in GPUs)"
    run gbatch up --nodes 2 --cpus 4 --gpus a100:4 --dir "$dir" --detach | sed '/^$/,$d'
    export STANDIN_GPUS=$dir/gpus # for gpu.sh
fi
many=$((gpus == 1 ? 1 : 2))

say "Submitting the scripts in etc/examples"
mkdir "$work/out"
cd "$work/out"
ex=$top/etc/examples
exec 3>&1
submit() { # gives the number of the job; what it shows goes past the caller's $(...)
    printf '%s$ gsubmit %s%s   ' "$bold" "${*//$ex\//}" "$plain" >&3
    local id
    id=$(gsubmit --parsable "$@")
    printf 'job %s\n' "$id" >&3
    echo "$id"
}
submit "--gres=gpu:$many" "$ex/gpu.sh" >/dev/null
submit "--gres=gpu:1" "$ex/gpu.sh" >/dev/null
submit "$ex/array.sh" >/dev/null
first=$(submit "$ex/chain-1-prepare.sh")
second=$(submit -d "afterok:$first" "$ex/chain-2-train.sh")
submit -d "afterok:$second" "$ex/chain-3-report.sh" >/dev/null
submit "$ex/fail.sh" >/dev/null
submit "$ex/overtime.sh" >/dev/null

say "The queue, once a second (gqueue)"
lines=0 last='' started=$SECONDS
while :; do
    now=$(gqueue -o '%.9i %.10j %.11T %.6M %.6D %R')
    if [ -t 1 ]; then
        if [ "$lines" -gt 0 ]; then printf '\e[%dA\e[J' "$lines"; fi
        printf '%s\n' "$now"
        lines=$(printf '%s\n' "$now" | wc -l)
    elif [ "$now" != "$last" ]; then
        printf -- '-- after %d s\n%s\n' $((SECONDS - started)) "$now"
        last=$now
    fi
    if [ "$(printf '%s\n' "$now" | wc -l)" -le 1 ]; then break; fi
    if [ $((SECONDS - started)) -gt 120 ]; then
        echo "the jobs take longer than two minutes" >&2
        exit 1
    fi
    sleep 1
done

say "What the jobs printed"
for f in *.out; do
    printf '%s%s%s\n' "$bold" "$f" "$plain"
    sed 's/^/    /' "$f"
done

say "Accounting"
# The last jobs' records arrive a moment after their ends.
for _ in $(seq 50); do
    gacct -X -n -o State | grep -q -E 'RUNNING|PENDING' || break
    sleep 0.1
done
run gacct -X -o JobID,JobName,NodeList,AllocCPUS,State,ExitCode,Elapsed,TotalCPU
say "Nodes"
run ginfo
say "Usage"
run gshare
