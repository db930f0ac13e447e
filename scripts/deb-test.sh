#!/usr/bin/env bash
# Installs, upgrades, removes and purges the packages of scripts/deb.sh with this machine's dpkg, on a copy of its file
# system that is thrown away (an overlay in memory), and runs a cluster from what was installed. Less than a minute.
# Exit status 75: it can't be done here. usage: scripts/deb-test.sh [DIRECTORY OF PACKAGES]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skip() { echo "NOT RUN: $*"; exit 75; }
[ "$(id -u)" = 0 ] || skip "packages can be tried by root only"
command -v dpkg-deb >/dev/null && [ -d /var/lib/dpkg ] || skip "dpkg-deb is missing (apt-get install dpkg): packages are not tried"

if [ -z "${INSIDE:-}" ]; then
    for c in adduser deb-systemd-helper; do
        command -v "$c" >/dev/null || skip "$c is missing (apt-get install adduser init-system-helpers)"
    done
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    debs=${1:-}
    if [ -z "$debs" ]; then
        debs=$work/debs
        COMPRESS="-Zgzip -z1" scripts/deb.sh 0.1.0 "$debs" >/dev/null
        COMPRESS="-Zgzip -z1" scripts/deb.sh 0.1.0 "$work/again" >/dev/null
        cmp "$debs/SHA256SUMS" "$work/again/SHA256SUMS" || { echo "two builds of the same packages differ" >&2; exit 1; }
        echo "ok: two builds of 7 packages are the same bytes"
    fi
    unshare -m --propagation private true 2>/dev/null || skip "no mount namespaces here: packages are not tried"
    export INSIDE="$work" DEBS="$debs"
    exec unshare -m --propagation private "$0"
fi

root=$INSIDE/root
mkdir "$INSIDE/mem"
mount -t tmpfs -o size=700m tmpfs "$INSIDE/mem" || skip "no tmpfs can be mounted"
mkdir -p "$INSIDE/mem/upper" "$INSIDE/mem/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$INSIDE/mem/upper,workdir=$INSIDE/mem/work" overlay "$root" ||
    skip "no overlay can be mounted here: packages are not tried"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
mkdir "$root/tmp/debs"
cp "$DEBS"/*.deb "$root/tmp/debs/"
at() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
die() { echo "FAILED: $*" >&2; exit 1; }
d=/tmp/debs
install() { at dpkg -i "$@" >"$INSIDE/log" 2>&1 || { cat "$INSIDE/log" >&2; die "dpkg -i $*"; }; }
file() { (cd "$DEBS" && printf "$d/%s\n" "$1"_*.deb); }
here() { for f in "$@"; do [ -e "$root$f" ] || [ -L "$root$f" ] || die "$f is missing"; done; }
gone() { for f in "$@"; do [ ! -e "$root$f" ] && [ ! -L "$root$f" ] || die "$f is still there"; done; }

# What is there already would hide what is left behind.
at sh -c 'dpkg -l "gbatch*" 2>/dev/null | grep -q ^ii' && skip "gbatch is installed on this machine"

# A first installation starts nothing, and its programs run.
install "$(file gbatch-common)" "$(file gbatch-client)" "$(file gbatch-ctld)" "$(file gbatch-dbd)" "$(file gbatch-noded)"
here /usr/bin/gnoded /usr/bin/gshim /usr/lib/systemd/system/gctld.service /etc/default/gctld /usr/share/man/man1/gsubmit.1.gz \
    /usr/share/bash-completion/completions/gsubmit /usr/share/doc/gbatch/NOTICES.gz /usr/share/gbatch/gbatch.conf.example \
    /etc/systemd/system/multi-user.target.wants/gnoded.service /etc/gbatch
gone /etc/gbatch/gbatch.conf /etc/gbatch/pki /var/lib/gbatch/ctld
at getent passwd gbatch >/dev/null || die "no user gbatch"
at gbatch check /usr/share/gbatch/gbatch.conf.example >"$INSIDE/log" || { cat "$INSIDE/log" >&2; die "the example is wrong"; }
at gbatch up --detach --nodes 2 --cpus 1 --mem 500M --dir /tmp/c >"$INSIDE/log" 2>&1 || { cat "$INSIDE/log" >&2; die "gbatch up"; }
got=$(at env GBATCH_DIR=/tmp/c GBATCH_CONF=/tmp/c/gbatch.conf grun -n1 echo hello 2>&1) || { at gbatch down --dir /tmp/c; die "grun: $got"; }
at gbatch down --dir /tmp/c >/dev/null
[ "$got" = hello ] || die "grun printed $got"
echo "ok: installed, nothing started, and a cluster of the installed programs runs a job"

# Slurm's names, and a login host in a node's place. Real Slurm, beside which the others were installed, goes first.
slurm=$(at dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'slurm*' 2>/dev/null | sed -n 's/^ii  *//p' | tr '\n' ' ')
# shellcheck disable=SC2086 # a list of packages
[ -z "$slurm" ] || at dpkg -P --force-depends $slurm >/dev/null 2>&1 || die "real Slurm can't be removed"
install "$(file gbatch-slurm-names)"
[ "$(at readlink -f /usr/bin/sbatch)" = /usr/bin/gcli ] || die "sbatch is not gcli"
at dpkg -s gbatch-slurm-names | grep -q '^Conflicts:.*slurm-client' || die "no conflict with slurm-client"
at sh -c 'echo "GNODED_OPTIONS=--virtual" >/etc/default/gnoded'
mkdir -p "$root/var/lib/gbatch/noded" && touch "$root/var/lib/gbatch/noded/kept"
at dpkg -i "$(file gbatch-login)" >/dev/null 2>&1 && die "a node takes gbatch-login as well"
at dpkg -r gbatch-noded >/dev/null
install "$(file gbatch-login)"
at dpkg -P gbatch-noded >/dev/null
here /usr/bin/gnoded /etc/default/gnoded /var/lib/gbatch/noded/kept
gone /usr/bin/gshim /usr/lib/systemd/system/gnoded.service
at dpkg -r gbatch-login >/dev/null
install "$(file gbatch-noded)"
grep -q virtual "$root/etc/default/gnoded" || die "a changed file of the configuration was replaced"
at dpkg -P gbatch-login >/dev/null
here /etc/default/gnoded /var/lib/gbatch/noded/kept
echo "ok: Slurm's names; a node becomes a login host and a node again"

# An upgrade keeps what was changed. The newer package is the same with another version.
mkdir "$INSIDE/newer"
dpkg-deb -R "$DEBS"/gbatch-ctld_*.deb "$INSIDE/newer/ctld"
sed -i 's/^Version: .*/&+1/' "$INSIDE/newer/ctld/DEBIAN/control"
echo "# a comment that is newer" >>"$INSIDE/newer/ctld/etc/default/gctld"
dpkg-deb -Zgzip -z1 --root-owner-group --build "$INSIDE/newer/ctld" "$root$d/newer.deb" >/dev/null
at sh -c 'echo "GCTLD_OPTIONS=-v" >/etc/default/gctld; mkdir -p /var/lib/gbatch/ctld; touch /var/lib/gbatch/ctld/log; echo "# ours" >/etc/gbatch/gbatch.conf'
rm "$root/etc/systemd/system/multi-user.target.wants/gctld.service" # systemctl disable
install --force-confold "$d/newer.deb"
here /var/lib/gbatch/ctld/log /etc/gbatch/gbatch.conf
grep -q '^GCTLD_OPTIONS=-v' "$root/etc/default/gctld" || die "the upgrade replaced a changed file"
gone /etc/systemd/system/multi-user.target.wants/gctld.service
echo "ok: an upgrade keeps files, state, and a unit that was disabled"

# Removing keeps configuration and state; purging leaves nothing.
all="gbatch-slurm-names gbatch-noded gbatch-ctld gbatch-dbd gbatch-client gbatch-common"
# shellcheck disable=SC2086 # names
at dpkg -r $all >/dev/null
here /etc/default/gctld /etc/gbatch/gbatch.conf /var/lib/gbatch/ctld/log
gone /usr/bin/gctld /usr/bin/sbatch /usr/lib/systemd/system/gctld.service
at dpkg -P gbatch-noded gbatch-ctld gbatch-dbd gbatch-common >"$INSIDE/log" 2>&1 || { cat "$INSIDE/log" >&2; die "purge"; }
grep -i 'warning' "$INSIDE/log" && die "a purge with warnings"
left=$(cd "$INSIDE/mem/upper" && find . ! -type d ! -type c -printf '/%P\n' |
    grep -Ev '^/(var/lib/dpkg/|var/log/(dpkg|alternatives)|var/cache/|etc/(passwd|group|shadow|gshadow|subuid|subgid|\.pwd\.lock)|tmp/|root/)' || true)
[ -z "$slurm" ] || left= # real Slurm's own packages have left files here
left+=$(cd "$INSIDE/mem/upper" && find . -iname '*gbatch*' ! -path './tmp/*' -printf '/%P\n' | while read -r f; do [ -e "$root$f" ] && echo "$f"; done || true)
at getent passwd gbatch >/dev/null && left+=" the user gbatch"
[ -z "$left" ] || die "left behind: $left"
echo "ok: removing keeps configuration and state, purging leaves nothing"
