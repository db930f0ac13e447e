#!/usr/bin/env bash
# Makes Debian packages of bin/ in dist/deb, with dpkg-deb alone. The same commit and the same Go give the same bytes.
# etc/debian says which package has what. usage: scripts/deb.sh VERSION [DIRECTORY]
# COMPRESS (-Zxz) are dpkg-deb's options of compression, MAINTAINER is whom users write to.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v dpkg-deb >/dev/null || { echo "dpkg-deb is missing: apt-get install dpkg (other systems have a package dpkg, too)" >&2; exit 75; }
out=${2:-dist/deb}
maintainer=${MAINTAINER:-gbatch maintainers <root@localhost>}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} LC_ALL=C TZ=UTC
arch=$(dpkg --print-architecture)
# 0.1.0-dev+564c26b5-dirty is 0.1.0~dev20261125221337+564c26b5.dirty: later ones are newer, and a release is newer than all of them.
version=$1
case $version in
*-dev*) version=${version/-dev/\~dev$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)} ;;
esac
version=${version//-/.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

all=$work/all
${MAKE:-make} --no-print-directory -s install-files DESTDIR="$all" PREFIX=/usr SLURM_NAMES=1 >/dev/null
rm "$all/usr/share/doc/gbatch/LICENSE" # it is the file copyright below
install -D -m 644 -t "$all/etc/default" etc/debian/default/*
install -D -m 644 etc/debian/logrotate "$all/etc/logrotate.d/gbatch"
install -m 644 etc/debian/README.Debian "$all/usr/share/doc/gbatch/README.Debian"
if [ -e bin/gbatch.cdx.json ]; then install -m 644 bin/gbatch.cdx.json "$all/usr/share/doc/gbatch/"; fi
# Pages of files that Slurm has too: slurm-client, which may be installed beside these packages, has them under the plain
# section. man finds both.
for f in "$all"/usr/share/man/man5/*.5; do
    case ${f##*/} in gbatch.conf.5) ;; *) mv "$f" "${f}gbatch" ;; esac
done
gzip -9n "$all"/usr/share/man/man*/*
gzip -9n "$all/usr/share/doc/gbatch/NOTICES"
for f in "$all"/usr/share/man/man1/*.gz; do # .so needs the name that the page has now
    if [ "$(zcat "$f" | head -c 4)" = ".so " ]; then
        to=$(zcat "$f" | sed 's,^\.so man1/,,')
        rm "$f" && ln -s "$to.gz" "$f"
    fi
done

# Each file goes to the packages of the first pattern that matches.
names=$(make -s print-snames)
patterns=()
while read -r packages pattern; do
    case $packages in '' | '#'*) continue ;; esac
    if [[ $pattern == *NAMES* ]]; then
        for n in $names; do patterns+=("$packages ${pattern/NAMES/$n}"); done
    else
        patterns+=("$packages $pattern")
    fi
done <etc/debian/files
while read -r file; do
    for p in "${patterns[@]}"; do
        # shellcheck disable=SC2053 # a pattern on purpose
        if [[ ${file%.gz} == ${p#* } ]]; then
            for package in $(tr , ' ' <<<"${p%% *}"); do
                install -d "$work/$package/$(dirname "$file")"
                cp -a "$all/$file" "$work/$package/$file"
            done
            continue 2
        fi
    done
    echo "etc/debian/files names no package for $file" >&2
    exit 1
done < <(cd "$all" && find . ! -type d -printf '%P\n' | sort)

install -d "$work/gbatch-common/etc/gbatch" "$work/gbatch-common/var/lib/gbatch" "$work/gbatch-common/var/log/gbatch"
glibc=$(grep -ao 'GLIBC_2\.[0-9]*' bin/gnoded | sort -uV | tail -1 || true)
libc="libc6 (>= ${glibc#GLIBC_})"
[ -n "$glibc" ] || libc= # built without a C compiler

mkdir -p "$out"
rm -f "$out"/gbatch-*.deb
built=()
for package in $(sed -n 's/^Package: //p' etc/debian/control); do
    root=$work/$package
    doc=$root/usr/share/doc/$package
    install -d "$doc" "$root/DEBIAN"
    cat >"$doc/copyright" <<X
gbatch: a batch system for GPU clusters. Copyright: the gbatch maintainers.

It is licensed under the Apache License, Version 2.0, which is in /usr/share/common-licenses/Apache-2.0. What is linked into it
is under the licences in /usr/share/doc/gbatch/NOTICES.gz of the package gbatch-common, which also say where the sources are.
X
    printf 'gbatch (%s) unstable; urgency=medium\n\n  * The section "Releases" of CONTRIBUTING.md says what changes for whom.\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"

    unit='' state=''
    case $package in
    gbatch-ctld) unit=gctld.service state=/var/lib/gbatch/ctld daemon=gctld ;;
    gbatch-dbd) unit=gdbd.service state=/var/lib/gbatch/dbd daemon=gdbd ;;
    gbatch-noded) unit=gnoded.service state=/var/lib/gbatch/noded daemon=gnoded ;;
    gbatch-login) unit=gnoded-login.service state=/var/lib/gbatch/noded daemon=gnoded ;;
    esac
    for s in postinst prerm postrm; do
        from=etc/debian/$package.$s
        if [ ! -e "$from" ] && [ -n "$unit" ]; then from=etc/debian/unit.$s; fi
        [ -e "$from" ] || continue
        sed "s,@unit@,$unit,g; s,@state@,$state,g; s,@daemon@,${daemon:-},g" "$from" >"$root/DEBIAN/$s"
        chmod 755 "$root/DEBIAN/$s"
    done
    (cd "$root" && find etc -type f -printf '/%p\n' 2>/dev/null | sort) >"$root/DEBIAN/conffiles" || true
    [ -s "$root/DEBIAN/conffiles" ] || rm "$root/DEBIAN/conffiles"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    size=$(find "$root" -type f ! -path '*/DEBIAN/*' -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
    awk -v want="$package" -v RS= '$2 == want' etc/debian/control |
        sed -e "s/@version@/$version/g" -e "s/, @libc@/${libc:+, $libc}/" -e "s/^Architecture: any$/Architecture: $arch/" \
            -e "1a\\Source: gbatch\nVersion: $version\nMaintainer: $maintainer\nSection: admin\nPriority: optional\nInstalled-Size: $size" \
            >"$root/DEBIAN/control"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    file=$out/${package}_${version}_$(sed -n 's/^Architecture: //p' "$root/DEBIAN/control").deb
    # shellcheck disable=SC2086 # options
    DPKG_DEB_THREADS_MAX=1 dpkg-deb ${COMPRESS:--Zxz} --root-owner-group --build "$root" "$file" >/dev/null &
    built+=($!)
    if [ ${#built[@]} -ge 2 ]; then wait "${built[0]}"; built=("${built[@]:1}"); fi
done
for pid in "${built[@]}"; do wait "$pid"; done
(cd "$out" && sha256sum -- *.deb >SHA256SUMS)
cat "$out/SHA256SUMS"
