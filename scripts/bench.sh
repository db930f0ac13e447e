#!/usr/bin/env bash
# Measures a fresh cluster on this machine, with real processes and everything durable, and real Slurm beside it in the same
# run where it is installed (apt-get install slurmctld slurmd munge). The last column is what shared FACTS.md, section 10,
# found of Slurm 22.05. Takes five minutes, with Slurm ten; says on stderr what it is at; cleans up after itself.
#
#   scripts/bench.sh [--no-slurm] [--quick]     --quick: a fifth of the jobs, and no 50,000 pending
#
# The first rows say how fast the machine is at the moment: on FACTS' machine /bin/true made 1,400/s, an empty Go program 890/s
# from one loop and 1,000/s from several, and a synced write took 0.2 ms. Submissions are also given as a share of the rate at
# which the same loops start an empty Go program, measured just before: that compares gbatch between machines. On a busy machine
# believe the CPU columns: rates and times then say more about the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
with_slurm=yes share=1
for arg; do
    case $arg in
    --no-slurm) with_slurm=no ;;
    --quick) share=5 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
done
export PATH="$PWD/bin:$PATH"
[ -x bin/gcli ] || make --no-print-directory build
work=$(mktemp -d "${TMPDIR:-/tmp}/gbatch-bench.XXXXXX")
chmod 755 "$work"
tool=$work/bench
dir=$work/cluster sdir=$work/slurm
cleanup() {
    gbatch down --dir "$dir" >/dev/null 2>&1 || true
    [ ! -e "$sdir/slurm.conf" ] || SLURM_CONF=$sdir/slurm.conf /usr/bin/scontrol shutdown >/dev/null 2>&1 || true
    pkill -f "munged.*$sdir" 2>/dev/null || true
    for _ in $(seq 100); do pgrep -f "slurm(ctld|d) -f $sdir" >/dev/null || break; sleep 0.1; done
    rm -rf "$work"
}
trap cleanup EXIT INT TERM
go build -o "$tool" ./scripts/bench
mkdir "$work/empty"
printf 'package main\n\nfunc main() {}\n' >"$work/empty/main.go"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/empty/empty" "$work/empty/main.go"
printf '#!/bin/sh\ntrue\n' >"$work/true.sh"

at() { [ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
per() { awk "BEGIN { printf \"%.2f\", $1 / $2 }"; }
share_of() { awk "BEGIN { printf \"%.0f %%\", 100 * $1 / $2 }"; }
ticks=$(getconf CLK_TCK)
# CPU milliseconds of the daemons whose command line has $1 in it; launchers with the jobs that they have reaped.
daemon_ms() {
    local sum=0 f
    for p in $(pgrep -f "$1" || true); do
        read -r -a f < <(sed 's/^.*) //' "/proc/$p/stat" 2>/dev/null) || continue
        case $(cat "/proc/$p/comm" 2>/dev/null) in
        gctld|gnoded|gdbd|gshim|slurmctld) sum=$((sum + f[11] + f[12])) ;;
        slurmd) sum=$((sum + f[11] + f[12] + f[13] + f[14])) ;;
        esac
    done
    echo $((sum * 1000 / ticks))
}

# measure NAME: one system through its own commands. $submit, $queue, $cancel and the functions records and wait_job say how;
# results go to $work/NAME.KEY.
measure() {
    local sys=$1 have ms a rate p50 p99 bad n=$((5000 / share))
    put() { echo "$2" >"$work/$sys.$1"; }
    at "$sys: held jobs, one loop"
    read -r floor _ < <("$tool" loop -n $((600 / share)) -c 1 -- "$work/empty/empty")
    read -r rate p50 p99 bad < <("$tool" loop -n $((600 / share)) -c 1 -- $submit -H -o /dev/null "$work/true.sh")
    put one "$rate/s"; put one_ms "$p50 / $p99 ms, $bad"; put one_share "$(share_of "$rate" "$floor")"
    at "$sys: held jobs, eight loops"
    read -r floor _ < <("$tool" loop -n $((2400 / share)) -c 8 -- "$work/empty/empty")
    read -r rate p50 p99 bad < <("$tool" loop -n $((2400 / share)) -c 8 -- $submit -H -o /dev/null "$work/true.sh")
    put eight "$rate/s"; put eight_share "$(share_of "$rate" "$floor")"
    at "$sys: a queue of 10,000"
    $submit -H --array "1-$((10000 - 3000 / share))" -o /dev/null "$work/true.sh" >/dev/null
    read -r wall cpu kib < <("$tool" peak -n 5 -- $queue -r)
    put queue "$wall ms, CPU $cpu"; put queue_mem "$((kib / 1024)) MiB"
    $cancel -u "$(id -un)"
    at "$sys: from the call to the script's first line"
    for _ in $(seq $((100 / share))); do
        rm -f "$work/first"
        $submit -o "$work/first" --wrap 'date +%s%N' >/dev/null
        a=$(date +%s%N) # as in FACTS: from the return of the call
        until [ -s "$work/first" ]; do sleep 0.002; done
        echo $((($(cat "$work/first") - a) / 1000))
    done | sort -n >"$work/latency"
    put first "$(sed -n "$((50 / share))p" "$work/latency") us"; put first99 "$(sed -n "$((99 / share))p" "$work/latency") us"
    at "$sys: $n jobs one by one"
    have=$(records); ms=$(daemon_ms "$2"); a=$(now_ms)
    read -r rate _ < <("$tool" loop -n $n -c 8 -- $submit -o /dev/null "$work/true.sh")
    until_records $((have + n))
    put single "$((n * 1000 / ($(now_ms) - a))) jobs/s"; put single_submit "$rate/s"
    put single_cpu "$(per $(($(daemon_ms "$2") - ms)) $n) ms"
    at "$sys: an array of $n"
    have=$(records); ms=$(daemon_ms "$2"); a=$(now_ms)
    $submit --array 1-$n -o /dev/null "$work/true.sh" >/dev/null
    until_records $((have + n))
    put array "$((n * 1000 / ($(now_ms) - a))) jobs/s"; put array_cpu "$(per $(($(daemon_ms "$2") - ms)) $n) ms"
    [ $sys = gbatch ] || return 0 # sbatch has no such mode
    at "$sys: a file of $n lines, a job for each"
    seq $n >"$work/lines"
    have=$(records); ms=$(daemon_ms "$2"); a=$(now_ms)
    $submit -Q --each "$work/lines" -o /dev/null "$work/true.sh"
    put each_submit "$((n * 1000 / ($(now_ms) - a)))/s"
    until_records $((have + n))
    put each "$((n * 1000 / ($(now_ms) - a))) jobs/s"; put each_cpu "$(per $(($(daemon_ms "$2") - ms)) $n) ms"
}
until_records() {
    for _ in $(seq 900); do
        [ "$(records)" -ge "$1" ] && return
        sleep 0.2
    done
    echo "bench: $1 jobs were not accounted within three minutes" >&2
    exit 1
}

at "the machine itself"
read -r true_rate _ < <("$tool" loop -n 600 -c 1 -- /bin/true)
read -r empty_rate _ < <("$tool" loop -n 600 -c 1 -- "$work/empty/empty")
sync_us=$("$tool" sync "$work")

at "gbatch: from nothing to the first job"
begin=$(now_ms)
gbatch up --nodes 4 --cpus 16 --gpus a100:4 --dir "$dir" --detach >/dev/null
export GBATCH_CONF=$dir/gbatch.conf
gsubmit -Q -W -o /dev/null "$work/true.sh" >/dev/null
echo "$(($(now_ms) - begin)) ms" >"$work/gbatch.begin"
printf 'MaxJobCount=1000000\nMaxArraySize=100001\n' >>"$GBATCH_CONF"
gcontrol reconfigure
records() { gacct -a -X -n -s CD -S now-1hour -o JobID | wc -l; }
submit=gsubmit queue=gqueue cancel=gcancel measure gbatch "$dir"
gbatch down --dir "$dir" >/dev/null
if [ $share = 1 ]; then
    rm -rf "$dir" # a fresh one: jobs that have ended are remembered for five minutes
    gbatch up --nodes 4 --cpus 16 --dir "$dir" --detach >/dev/null
    printf 'MaxJobCount=1000000\n' >>"$GBATCH_CONF"
    gcontrol reconfigure
    at "gbatch: 50,000 pending jobs, all different"
    "$tool" loop -n 50000 -c 8 -t 8m -- gsubmit -H -J 'job{}' -o "$work/out{}" --wrap 'echo {}' >"$work/many"
    pending=$(gqueue -h -t PD | wc -l)
    echo "$(($(awk '/VmRSS/ { print $2 }' /proc/"$(pgrep -f "gctld -f $dir")"/status) / 1024)) MiB" >"$work/gbatch.memory"
    gbatch down --dir "$dir" >/dev/null
fi

if [ $with_slurm = yes ] && command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null; then
    at "Slurm: starting"
    scripts/bench-slurm.sh "$sdir"
    export SLURM_CONF=$sdir/slurm.conf
    records() { [ ! -e "$sdir/completed" ] || wc -l <"$sdir/completed"; }
    submit=/usr/bin/sbatch queue=/usr/bin/squeue cancel=/usr/bin/scancel measure slurm "$sdir"
fi
at ""

row() { # TEXT KEY FACTS
    local g=- s=-
    [ ! -e "$work/gbatch.$2" ] || g=$(cat "$work/gbatch.$2")
    [ ! -e "$work/slurm.$2" ] || s=$(cat "$work/slurm.$2")
    printf '%-50s %18s %18s %16s\n' "$1" "$g" "$s" "$3"
}
echo "the machine now: /bin/true $true_rate/s, an empty Go program $empty_rate/s, a synced 4 KiB write $sync_us us; load $(cut -d' ' -f1 /proc/loadavg)"
echo
printf '%-50s %18s %18s %16s\n' measured gbatch "Slurm, same run" "Slurm in FACTS" "$(printf -- '-%.0s' {1..50})" "$(printf -- '-%.0s' {1..18})" "$(printf -- '-%.0s' {1..18})" "$(printf -- '-%.0s' {1..16})"
row "nothing to first job done" begin "2 min 17 s"
row "submissions of held jobs, one loop" one "150-190/s"
row "  of an empty Go program's rate" one_share "19 %"
row "  median / p99, failed" one_ms "6 / 16 ms"
row "submissions of held jobs, eight loops" eight "230-280/s"
row "  of an empty Go program's rate" eight_share "25 %"
row "queue listed, 10,000 pending" queue "220 ms"
row "  its memory" queue_mem "27 MiB"
row "submission's return to the first line, median" first "501 ms"
row "  p99" first99 "1036 ms"
row "$((5000 / share)) jobs one by one, to last record" single "52 jobs/s"
row "  submissions meanwhile, eight loops" single_submit "55/s"
row "  daemons' CPU a job" single_cpu "40 ms"
row "an array of $((5000 / share)), to last record" array "48 jobs/s"
row "  daemons' CPU a job" array_cpu "40 ms"
row "a file of $((5000 / share)) lines (--each), to last record" each -
row "  submissions" each_submit -
row "  daemons' CPU a job" each_cpu -
row "controller's memory, ${pending:-50000} pending jobs" memory "387 MiB (44,000)"
[ ! -e "$work/slurm.one" ] || echo "Slurm runs without slurmdbd here (records are lines of a file, not synced), its state is saved every 5 s and the CPU of its step daemons isn't counted."
