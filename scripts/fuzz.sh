#!/usr/bin/env bash
# Runs every fuzz target for a time. With a total it begins at another target each day, and says which it had no time for.
# usage: scripts/fuzz.sh TIME [TOTAL-SECONDS], such as 30s, or 1s 60
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
each=$1
total=${2:-}
go=${GO:-go}
mapfile -t targets < <(grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | grep -v /testdata/ |
    sed -E 's,/[^/]*:func , ,' | LC_ALL=C sort)
n=${#targets[@]}
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
