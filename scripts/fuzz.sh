#!/usr/bin/env bash
# Runs every fuzz target for a time. With a total it begins at another target each day, and says which it had no time for.
# usage: scripts/fuzz.sh TIME [TOTAL-SECONDS], such as 30s, or 1s 60
#        scripts/fuzz.sh --keep N
# The second form runs nothing: it brings each target's corpus in the repository to N inputs, small and large ones of those
# with which earlier runs on this machine have reached code that no input before them had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
keep=
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
begin=$SECONDS
ran=0
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
    if ! "$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$each" "$dir" 2>&1 | tee "$log"; then
        nothing_found "$log" || exit 1
        echo "$name: its time was over; nothing was found"
    fi
    ran=$((ran + 1))
done
echo "fuzzed $ran of $n targets"
if [ ${#late[@]} -gt 0 ]; then echo "no time was left for: ${late[*]}"; fi
