#!/usr/bin/env bash
# Measures a fresh cluster on this machine, with real processes and everything durable, beside what real Slurm 22.05 does
# on such a machine (shared FACTS.md, section 10). Takes about three minutes, cleans up after itself.
# On a busy machine believe the CPU columns: rates and times then say more about the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/bin:$PATH"
[ -x bin/gcli ] || make --no-print-directory build
work=$(mktemp -d "${TMPDIR:-/tmp}/gbatch-bench.XXXXXX")
chmod 755 "$work"
dir=$work/cluster
cleanup() { gbatch down --dir "$dir" >/dev/null 2>&1 || true; rm -rf "$work"; }
trap cleanup EXIT INT TERM
tool=$work/bench
go build -o "$tool" ./scripts/bench

row() { printf '%-52s %18s %18s\n' "$1" "$2" "$3"; }
ticks=$(getconf CLK_TCK)
# CPU milliseconds of all daemons of the cluster; gshim's with the jobs that it has reaped when $1 is "jobs".
daemon_ms() {
    local sum=0 f
    for p in $(pgrep -f "$dir" || true); do
        read -r -a f < <(sed 's/^.*) //' "/proc/$p/stat" 2>/dev/null) || continue
        case $(cat "/proc/$p/comm" 2>/dev/null) in gctld|gnoded|gdbd|gshim) sum=$((sum + f[11] + f[12])) ;; esac
    done
    echo $((sum * 1000 / ticks))
}
records() { gacct -a -X -n -s CD -S now-1hour -o JobID | wc -l; }
until_records() { for _ in $(seq 600); do [ "$(records)" -ge "$1" ] && return; sleep 0.2; done; echo "bench: $1 jobs were not accounted within two minutes" >&2; exit 1; }

begin=$(date +%s%N)
gbatch up --nodes 4 --cpus 16 --gpus a100:4 --dir "$dir" --detach >/dev/null
export GBATCH_CONF=$dir/gbatch.conf
printf 'MaxJobCount=1000000\nMaxArraySize=100001\n' >>"$GBATCH_CONF"
gcontrol reconfigure
printf '#!/bin/sh\ntrue\n' >"$work/true.sh"
gsubmit -Q -W -o /dev/null "$work/true.sh" >/dev/null
row "measured" "gbatch" "Slurm 22.05"
row "----------------------------------------------------" "------------------" "------------------"
row "nothing to first job done" "$((($(date +%s%N) - begin) / 1000000)) ms" "2 min 17 s"

read -r rate p50 p99 bad < <("$tool" loop -n 600 -c 1 -- gsubmit -H -o /dev/null "$work/true.sh")
row "gsubmit, held jobs, one loop" "$rate/s" "150-190/s"
row "  median, p99, failed" "$p50 / $p99 ms, $bad" "6 / 16 ms"
read -r rate p50 p99 bad < <("$tool" loop -n 2400 -c 8 -- gsubmit -H -o /dev/null "$work/true.sh")
row "gsubmit, held jobs, eight loops" "$rate/s" "230-280/s"
read -r rate _ < <("$tool" loop -n 600 -c 1 -- /bin/true)
row "  for comparison: /bin/true, one loop" "$rate/s" "-"
gsubmit -Q -H --array 1-7000 -o /dev/null "$work/true.sh" >/dev/null
read -r wall cpu kib < <("$tool" peak -n 5 -- gqueue -r)
row "gqueue -r, 10,000 pending" "$wall ms, CPU $cpu" "220 ms"
row "  its memory" "$((kib / 1024)) MiB" "27 MiB"
gcancel -u "$(id -un)"

for i in $(seq 100); do
    a=$(date +%s%N)
    gsubmit -Q -W -o "$work/first" --wrap 'date +%s%N' >/dev/null
    echo $((($(cat "$work/first") - a) / 1000))
done | sort -n >"$work/latency"
row "gsubmit's start to the script's first line, median" "$(sed -n 50p "$work/latency") us" "501 ms (return)"
row "  p99" "$(sed -n 99p "$work/latency") us" "1036 ms"

have=$(records); ms=$(daemon_ms); a=$(date +%s%N)
read -r rate _ < <("$tool" loop -n 5000 -c 8 -- gsubmit -o /dev/null "$work/true.sh")
until_records $((have + 5000))
t=$((($(date +%s%N) - a) / 1000000)); ms=$(($(daemon_ms) - ms))
row "5,000 jobs submitted one by one, to last record" "$((5000000 / t)) jobs/s" "52 jobs/s"
row "  submissions while they run, eight loops" "$rate/s" "55/s"
row "  daemons' CPU a job" "$(awk "BEGIN { printf \"%.2f\", $ms / 5000 }") ms" "40 ms"
have=$(records); ms=$(daemon_ms); a=$(date +%s%N)
gsubmit -Q --array 1-5000 -o /dev/null "$work/true.sh" >/dev/null
until_records $((have + 5000))
t=$((($(date +%s%N) - a) / 1000000)); ms=$(($(daemon_ms) - ms))
row "an array of 5,000, to last record" "$((5000000 / t)) jobs/s" "48 jobs/s"
row "  daemons' CPU a job" "$(awk "BEGIN { printf \"%.2f\", $ms / 5000 }") ms" "40 ms"

"$tool" loop -n 50000 -c 8 -t 8m -- gsubmit -H -J 'job{}' -o "$work/out{}" --wrap 'echo {}' >"$work/many"
row "gctld's memory, $(gqueue -h -t PD | wc -l) pending distinct jobs" \
    "$(($(awk '/VmRSS/ { print $2 }' /proc/"$(pgrep -f "gctld -f $dir")"/status) / 1024)) MiB" "387 MiB at 44,000"
