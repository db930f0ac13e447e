#!/usr/bin/env bash
# Makes dist/gbatch-VERSION-linux-ARCH.tar.gz for amd64 and arm64, and dist/SHA256SUMS. The same commit and the same Go give the
# same bytes. All programs are static; where a C compiler for this machine is there, its archive also has gnoded-nvml.
# usage: scripts/dist.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1
go=${GO:-go}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
ldflags="-s -w -X gbatch/internal/version.Version=$version"
export GOFLAGS="-trimpath -buildvcs=false" GOOS=linux LC_ALL=C TZ=UTC
host=$("$go" env GOHOSTARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
rm -rf dist
mkdir -p dist
GO=$go scripts/notices.sh >"$work/NOTICES"
mkdir "$work/completion"
for shell in bash fish zsh; do "$go" run ./cmd/gbatch completion "$shell" >"$work/completion/$shell"; done

for arch in amd64 arm64; do
    name=gbatch-$version-linux-$arch
    to=$work/$name
    # make install does the rest as it always does; it finds these programs built.
    mkdir -p "$to/usr/bin" "$work/$arch"
    CGO_ENABLED=0 GOARCH=$arch "$go" build -ldflags "$ldflags" -o "$work/$arch/" ./cmd/...
    nvml="gnoded looks for GPUs with AutoDetect=nvidia (without NVIDIA's library), or as gres.conf lists them. AutoDetect=nvml needs a gnoded built on such a machine (make build)."
    if [ "$arch" = "$host" ] && command -v "${CC:-cc}" >/dev/null; then
        CGO_ENABLED=1 GOARCH=$arch CGO_CFLAGS=-Wno-deprecated-declarations "$go" build -ldflags "$ldflags" -o "$work/$arch/gnoded-nvml" ./cmd/gnoded
        nvml="gnoded looks for GPUs with AutoDetect=nvidia (without NVIDIA's library), or as gres.conf lists them. gnoded-nvml is the same with AutoDetect=nvml; it needs the C library, and takes gnoded's place on nodes with GPUs."
    fi
    GOARCH=$host CGO_ENABLED=0 "$go" run ./scripts/supply "$work/$arch"/* >"$work/$arch.cdx.json"
    make --no-print-directory -s install-files DESTDIR="$to" PREFIX=/usr BIN="$work/$arch" NOTICES="$work/NOTICES" COMPLETION="$work/completion"
    install -m 644 "$work/$arch.cdx.json" "$to/usr/share/doc/gbatch/gbatch.cdx.json"
    install -m 644 "$work/$arch.cdx.json" "dist/$name.cdx.json"
    if [ -e "$work/$arch/gnoded-nvml" ]; then install -m 755 "$work/$arch/gnoded-nvml" "$to/usr/bin/"; fi
    cat >"$to/README" <<X
gbatch $version for linux/$arch, built with $("$go" env GOVERSION).

Copy usr/ to /usr (tar -C / --strip-components=1 -xf THIS gbatch-$version-linux-$arch/usr), or the programs of usr/bin into one
directory of PATH. man gbatch begins; usr/share/gbatch has examples; usr/lib/systemd/system has a unit for each daemon.
All programs are static. $nvml
LICENSE, NOTICES and gbatch.cdx.json (CycloneDX: all that is linked) are in usr/share/doc/gbatch.
X
    tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -C "$work" -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
    echo "dist/$name.tar.gz: $nvml"
done
(cd dist && sha256sum -- *.tar.gz *.cdx.json >SHA256SUMS)
cat dist/SHA256SUMS
