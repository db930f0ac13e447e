#!/usr/bin/env bash
# One user attacks a cluster with 512 connections, in each way that scripts/attack knows, while others submit jobs: how many
# submissions a second are left of those just before and after, how much memory each daemon took at most beyond what it had,
# and how much of a CPU the daemons and the attacker used.
# The attacker's own processes get only CPU that nobody else wants (SCHED_IDLE), as if they were on another host; what the
# daemons do for them counts. Needs root, for another user. Takes six minutes; says on stderr what it is at. It fails if an
# attack leaves the others less than 70 % of their submissions, a daemon takes over 256 MiB more than before, or one is gone.
#
# With --short it takes three ways that cost most, for some seconds each, on a machine that does other things too: it fails by
# memory, lost daemons, and a share below 20 %; what it measured of the share is told.
#
#   scripts/attack.sh [--short] [WAY...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" = 0 ] || { echo "attack.sh: needs root: the attacker is another user" >&2; exit 2; }
export PATH="$PWD/bin:$PATH"
[ -x bin/gcli ] || make --no-print-directory build
work=$(mktemp -d "${TMPDIR:-/tmp}/gbatch-attack.XXXXXX")
chmod 755 "$work"
dir=$work/cluster
trap 'gbatch down --dir "$dir" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT INT TERM
go build -o "$work/bench" ./scripts/bench
go build -o "$work/attack" ./scripts/attack
printf '#!/bin/sh\ntrue\n' >"$work/true.sh"
alone_s=5 lasts=10 beside_s=7 least=70 seen=5000
if [ "${1:-}" = --short ]; then
    shift
    alone_s=2 lasts=5 beside_s=3 least=20 seen=500
    [ $# -gt 0 ] || set -- lists large half
fi
ways=("$@")
[ $# -gt 0 ] || mapfile -t ways < <("$work/attack" -h 2>&1 | awk '/^  [a-z]/ && !/^  -/ { print $1 }')

gbatch up --nodes 2 --cpus 16 --gpus a100:4 --dir "$dir" --detach >/dev/null
export GBATCH_CONF=$dir/gbatch.conf
echo 'MaxJobCount=1000000' >>"$GBATCH_CONF"
gcontrol reconfigure >/dev/null
cd "$work"
pids() { pgrep -f "^[^ ]*/(gctld|gdbd|gnoded) .*$dir" || true; }
# mib NAME PID: VmRSS (now) or VmHWM (at most since the last `echo 5 >clear_refs`), MiB
mib() { awk -v n="$1:" '$1 == n { print int($2 / 1024) }' "/proc/$2/status" 2>/dev/null || echo 0; }
# ticks PID...: CPU time, hundredths of a second
ticks() {
    local p line sum=0
    for p in "$@"; do
        line=$(cat "/proc/$p/stat" 2>/dev/null) || continue
        read -r -a line <<<"${line##*) }"
        sum=$((sum + line[11] + line[12]))
    done
    echo $sum
}
# rate SECONDS: submissions a second of two others, and how many failed
rate() { "$work/bench" loop -open -n 1000000 -c 2 -t "$1s" -- gsubmit -H -o /dev/null true.sh; }
# What the attacker reads: jobs of others.
"$work/bench" loop -n "$seen" -c 2 -- gsubmit -H -o /dev/null true.sh >/dev/null
bad=0
printf '%-9s %9s %9s %7s %7s %7s %7s   %s\n' attack alone/s beside/s share failed daemons attack 'MiB above before, at most'
for way in "${ways[@]}"; do
    [ ! -t 2 ] || printf '\r\033[K%s' "$way" >&2
    declare -A before=() most=()
    read -r alone _ < <(rate "$alone_s")
    # The kernel keeps the peak: whoever asks for it every tenth of a second takes a fifth of a slow machine from what is measured.
    for p in $(pids); do
        before[$p]=$(mib VmRSS "$p")
        echo 5 >"/proc/$p/clear_refs"
    done
    setpriv --reuid 65534 --regid 65534 --clear-groups chrt -i 0 "$work/attack" -t "${lasts}s" "$dir/run" "$way" >"$work/said" 2>&1 &
    attacker=$!
    sleep 1.5
    mapfile -t all < <(pids)
    cpu=$(ticks "${all[@]}") his=$(ticks $attacker)
    read -r got _ _ failed < <(rate "$beside_s")
    for p in "${!before[@]}"; do most[$p]=$(($(mib VmHWM "$p") - before[$p])); done
    cpu=$(($(ticks "${all[@]}") - cpu)) his=$(($(ticks $attacker) - his))
    wait $attacker || true
    said=
    for p in $(pids); do
        said+=" $(cat "/proc/$p/comm") ${most[$p]:-new}"
        [ "${most[$p]:-0}" -le 256 ] || bad=1
    done
    gone=$((${#before[@]} - $(pids | wc -l)))
    if [ $gone != 0 ]; then
        said+="  $gone DAEMONS ARE GONE"
        bad=1
    fi
    gcancel -u nobody >/dev/null 2>&1 || true
    sleep 1
    read -r after _ < <(rate "$alone_s")
    [ ! -t 2 ] || printf '\r\033[K' >&2
    awk -v a="$alone" -v b="$got" -v c="$after" -v w="$way" -v f="$failed" -v s="$said" -v d="$cpu" -v h="$his" -v n="$beside_s" 'BEGIN {
        printf "%-9s %9.0f %9.0f %6.0f%% %7s %7.2f %7.2f  %s\n", w, (a + c) / 2, b, 200 * b / (a + c), f, d / (100 * n), h / (100 * n), s }'
    sed 's/^/          /' "$work/said"
    awk -v a="$alone" -v b="$got" -v c="$after" -v l="$least" 'BEGIN { exit 200 * b < l * (a + c) }' || bad=1
done
exit $bad
