#!/usr/bin/env bash
# Prints the licences and notices of everything that is linked into gbatch's programs: of the modules, and of Go itself.
# usage: scripts/notices.sh > FILE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}

echo "gbatch's programs contain the software below, unchanged. Its licences, and notices where it has any, follow. The source of a
module is at https://PATH, and at https://proxy.golang.org/PATH/@v/VERSION.zip; Go's is at https://go.dev/dl."
print() { # NAME DIRECTORY
    local found=
    case $2 in "$PWD"/*) return ;; esac # gbatch's own, in the place of another module
    for f in "$2"/LICEN[CS]E* "$2"/COPYING* "$2"/NOTICE* "$2"/PATENTS*; do
        [ -f "$f" ] || continue
        case $f in *.go) continue ;; esac
        found=1
        printf '\n==== %s: %s ====\n\n' "$1" "$(basename "$f")"
        cat "$f"
    done
    [ -n "$found" ] || { echo "scripts/notices.sh: $1 in $2 has no licence file" >&2; exit 1; }
}
print "Go $("$go" env GOVERSION)" "$("$go" env GOROOT)"
# Both ways that gnoded is built link the union of these.
for cgo in 0 1; do
    CGO_ENABLED=$cgo GOOS=linux "$go" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{.Dir}}{{end}}{{end}}' ./cmd/...
done | LC_ALL=C sort -u | while IFS='|' read -r name dir; do print "$name" "$dir"; done
