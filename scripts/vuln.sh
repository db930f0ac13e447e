#!/usr/bin/env bash
# Looks for known vulnerabilities in what gbatch calls. Fails if there is one; a database that can't be had is said and
# fails nothing.
# usage: scripts/vuln.sh [SECONDS]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
rc=0
timeout -k 10 "${1:-600}" ${GO:-go} tool govulncheck ./... >"$out" 2>&1 || rc=$?
case $rc in
0) tail -n 3 "$out" ;;
3) # govulncheck's own code for a vulnerable function that is called
    cat "$out"
    echo "scripts/vuln.sh: a known vulnerability is called: update the module, or Go, that is named above" >&2
    exit 1
    ;;
124 | 137) echo "NOT FINISHED: it takes longer than ${1:-600} seconds here" ;;
*)
    if grep -qE 'fetching vuln|no such host|refused|timeout|unreachable' "$out"; then
        echo "NOT RUN: the database of vulnerabilities can't be had here"
    else
        cat "$out"
        exit "$rc"
    fi
    ;;
esac
