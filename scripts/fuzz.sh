#!/usr/bin/env bash
# Runs every fuzz target for a time. With a total it begins at another target each day, and says which it had no time for.
# Without a TIME (-) the total is divided: a target that sends what users, hosts and daemons send, as one of them, gets four
# times as much as one of a parser. A target bounds itself what an input may cost in memory and time (FuzzUser in package ctld).
# usage: scripts/fuzz.sh [--record FILE] TIME [TOTAL-SECONDS], such as 30s, or 1s 60, or - 3600
#        scripts/fuzz.sh --keep N
# With --record it adds a line to a file: the date, the commit, how long, how many targets, inputs that they tried in all, and
# of the roles each. The last form runs nothing: it brings each target's corpus in the repository to N inputs, small and large ones of those
# with which earlier runs on this machine have reached code that no input before them had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
keep= record=
if [ "${1:-}" = --record ]; then
    record=${2:?which file}
    shift 2
fi
if [ "${1:-}" = --keep ]; then
    keep=${2:?how many inputs each target keeps}
    shift 2
fi
each=${1:-}
total=${2:-}
mapfile -t targets < <(grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | grep -v /testdata/ |
    sed -E 's,/[^/]*:func , ,' | LC_ALL=C sort)
n=${#targets[@]}

# keep_inputs DIR TARGET: fill the target's corpus up to $keep inputs of at most 4 KiB.
keep_inputs() {
    local from to=$1/testdata/fuzz/$2 there=0 path all
    from=$("$go" env GOCACHE)/fuzz/$("$go" list "$1")/$2
    [ -d "$from" ] || return 0
    if [ -d "$to" ]; then there=$(find "$to" -type f | wc -l); fi
    all=$(find "$from" -type f -size -5k | wc -l)
    while [ "$there" -lt "$keep" ] && read -r _ path; do
        [ -e "$to/${path##*/}" ] && continue
        mkdir -p "$to"
        cp "$path" "$to/"
        there=$((there + 1))
    done < <(find "$from" -type f -size -5k -printf '%s %p\n' | sort -n |
        awk -v every=$((all / (keep - there + 1) + 1)) 'NR % every == 1 || every == 1')
    echo "$1 $2: $there inputs"
}

if [ -n "$keep" ]; then
    for target in "${targets[@]}"; do
        read -r dir name <<<"$target"
        keep_inputs "$dir" "$name"
    done
    exit
fi
first=$(($(date +%s) / 86400 % n))
[ -n "$total" ] || first=0
# The targets that are somebody: daemons' own requests, and users'.
roles='^\./(ctld Fuzz(Stranger|User|Coordinator|Operator|Administrator|LoginHost|Node|Controller|Gdbd|HTTP)|dbd Fuzz(Controller|Users)|noded Fuzz(StepUser|StepPeer|StepEvents|Orders)|noded/shim FuzzOrder)$'
parts=0
for target in "${targets[@]}"; do
    if [[ $target =~ $roles ]]; then parts=$((parts + 4)); else parts=$((parts + 1)); fi
done
# Building takes no target's time: all are built before. A tenth of the total is for their starts.
part=
if [ "$each" = - ]; then
    part=$(((${total:?a total is divided} * 9 / 10) * 1000 / parts))
    echo "building ${#targets[@]} targets"
    for dir in $(printf '%s\n' "${targets[@]}" | cut -d' ' -f1 | sort -u); do
        "$go" test -run '^$' -fuzz '^None$' "$dir" >/dev/null 2>&1 || true # what can't be built is said below
    done
    first=0
fi
begin=$SECONDS
ran=0 execs=0
by=()
late=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# nothing_found LOG: whether a target failed for nothing but its time being over. On a busy machine Go's own fuzzer races with
# its deadline (golang.org/issue/75804): it then says so, and has written no input that fails.
nothing_found() {
    grep -q '^    context deadline exceeded$' "$1" && ! grep -qE 'Failing input|panic:|_test\.go:' "$1"
}

for ((i = 0; i < n; i++)); do
    read -r dir name <<<"${targets[(first + i) % n]}"
    if [ -n "$total" ] && [ $((SECONDS - begin)) -ge "$total" ]; then
        late+=("$name")
        continue
    fi
    echo "$dir $name"
    time=$each
    if [ -n "$part" ]; then
        time=$part
        if [[ "$dir $name" =~ $roles ]]; then time=$((4 * part)); fi
        time=${time}ms
    fi
    if ! "$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$dir" 2>&1 | tee "$log"; then
        nothing_found "$log" || exit 1
        echo "$name: its time was over; nothing was found"
    fi
    ran=$((ran + 1))
    tried=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
    execs=$((execs + ${tried:-0}))
    if [[ "$dir $name" =~ $roles ]]; then by+=("${dir#./} ${name#Fuzz} ${tried:-0}"); fi
done
echo "fuzzed $ran of $n targets: $execs inputs in $((SECONDS - begin)) seconds"
if [ -n "$record" ]; then
    printf '%s %s: %s seconds, %s of %s targets, %s inputs, nothing found; %s\n' "$(date -u +%F)" \
        "$(git describe --always --dirty 2>/dev/null || echo unknown)" "$((SECONDS - begin))" "$ran" "$n" "$execs" \
        "$(printf '%s, ' "${by[@]}" | sed 's/, $//')" >>"$record"
    echo "noted in $record"
fi
if [ ${#late[@]} -gt 0 ]; then echo "no time was left for: ${late[*]}"; fi
