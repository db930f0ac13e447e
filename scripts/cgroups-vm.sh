#!/usr/bin/env bash
# Control groups on a kernel of their own: boots Debian's kernel in QEMU (no KVM needed), first with cgroup v2 alone, then with
# v1 alone, and runs there the tests of noded/cgroup, those of noded in which gnoded and gshim hold real jobs to their
# devices, cores and memory, and those of noded/shim that want all of root's rights. A quarter of a minute when quiet; the kernel (26 MB) is fetched once and kept.
#
#   scripts/cgroups-vm.sh [v1|v2]...      both without an argument
#
# Exit status: 0 all tests passed; 75 it can't be done here (a sentence says why); anything else: a test failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${GBATCH_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gbatch-vm}
most=${GBATCH_VM_SECONDS:-150} # of one boot
versions=("$@")
[ $# -gt 0 ] || versions=(v2 v1)

cannot() {
    echo "cgroups-vm.sh: not run: $*" >&2
    exit 75
}

[ "$(uname -m)" = x86_64 ] || cannot "the machine is $(uname -m); the kernel and QEMU are those for x86_64"
missing=()
command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
command -v busybox >/dev/null && ldd "$(command -v busybox)" >/dev/null 2>&1 && missing+=(busybox-static) # a shared one has no libraries there
command -v busybox >/dev/null || missing+=(busybox-static)
fresh() { # package lists; once
    [ -n "${updated-}" ] || timeout 60 apt-get update -qq >/dev/null 2>&1 || cannot "no package lists can be fetched (no network?)"
    updated=1
}
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || cannot "${missing[*]} missing, and there is no apt-get to install it"
    [ "$(id -u)" = 0 ] || cannot "${missing[*]} missing, and only root can install it: apt-get install ${missing[*]}"
    fresh
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        cannot "${missing[*]} can't be installed (no network?)"
fi
mkdir -p "$cache"
if ! [ -s "$cache/vmlinuz" ]; then
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || cannot "there is no apt-get to fetch Debian's kernel with"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    chmod 755 "$work"
    kernel() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }'; }
    pkg=$(kernel)
    [ -n "$pkg" ] || { fresh; pkg=$(kernel); }
    [ -n "$pkg" ] || cannot "no package linux-image-cloud-amd64 is known here; put a kernel with cgroups built in at $cache/vmlinuz"
    (cd "$work" && { timeout 120 apt-get download -qq "$pkg" >/dev/null 2>&1 || { fresh && timeout 120 apt-get download -qq "$pkg" >/dev/null 2>&1; }; }) ||
        cannot "$pkg can't be fetched (no network?)"
    dpkg -x "$work/$pkg"_*.deb "$work/x"
    mv "$work"/x/boot/vmlinuz-* "$cache/vmlinuz"
    rm -rf "$work"
    trap - EXIT
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/gbatch-vm.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,etc,test,proc,sys,dev,tmp}
cp "$(command -v busybox)" "$root/bin/busybox"
busybox --list | grep -vx busybox | while read -r applet; do ln -sf busybox "$root/bin/$applet"; done
echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
echo 'root:x:0:' > "$root/etc/group"
export CGO_ENABLED=0
go test -c -o "$root/test/cgroup" ./noded/cgroup
go test -c -o "$root/test/noded" ./noded
go test -c -o "$root/test/shim" ./noded/shim
go build -ldflags '-s -w' -o "$root/test/" ./cmd/gshim ./cmd/gnoded

# What gnoded and gshim have to show with real jobs.
jobs='^(TestJobsOpenTheirDevicesOnly|TestDeviceRulesOutliveGnoded|TestStepsOpenTheirDevicesOnly|TestStepGroup|TestOutOfMemory)$'
# What gshim has to show as a root that may do everything, which it is on few test machines, and in control groups.
shim='^(TestRootRaisesHardLimits|TestShieldedFromOOMKiller|TestHangingLaunch|TestHangingLaunchV1)$'
cat > "$root/init" <<I
#!/bin/sh
export PATH=/bin HOME=/ TMPDIR=/tmp NODED_TEST_BINARIES=/test GSHIM_TEST_BINARIES=/test
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs -o mode=1777 tmp /tmp
ip link set lo up
read -r line < /proc/cmdline
case "\$line" in
*cgroups=v2*)
    mount -t cgroup2 cg /sys/fs/cgroup ;;
*)
    mount -t tmpfs -o mode=755 cg /sys/fs/cgroup
    for c in cpuset cpuacct memory devices freezer pids; do
        mkdir /sys/fs/cgroup/\$c && mount -t cgroup -o \$c \$c /sys/fs/cgroup/\$c
    done ;;
esac
cd /tmp
rc=0
for t in cgroup noded shim; do
    only=.; [ \$t = noded ] && only='$jobs'; [ \$t = shim ] && only='$shim'
    { /test/\$t -test.v -test.timeout ${most}s -test.run "\$only" 2>&1; echo \$? > rc; } | tee out | grep -E '^ *--- (PASS|SKIP|FAIL)'
    [ \$(cat rc) = 0 ] || { rc=1; grep -v 'level=' out | tail -n 60; }
done
echo "VM-RC=\$rc"
poweroff -f
I
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 > "$work/initrd.gz")

for v in "${versions[@]}"; do
    began=$SECONDS
    # -accel tcg: where /dev/kvm exists it may still not work.
    timeout "$most" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nodefaults -no-reboot -display none -serial stdio \
        -kernel "$cache/vmlinuz" -initrd "$work/initrd.gz" -append "console=ttyS0 panic=-1 quiet loglevel=3 random.trust_cpu=on cgroups=$v" \
        < /dev/null > "$work/out.$v" 2>&1 || true
    tr -d '\r' < "$work/out.$v" > "$work/out"
    if ! grep -q '^VM-RC=' "$work/out" && ! grep -q -- '--- FAIL' "$work/out"; then
        tail -n 20 "$work/out"
        cannot "cgroup $v alone: the tests did not end within $most s, and none had failed: the machine is too slow or busy (GBATCH_VM_SECONDS gives more)"
    fi
    if ! grep -q '^VM-RC=0$' "$work/out"; then
        tail -n 100 "$work/out"
        echo "cgroups-vm.sh: tests failed on cgroup $v alone" >&2
        exit 1
    fi
    # A test that was skipped proves nothing: the ones that count must have run.
    for t in TestDevices/ TestSub/ TestCPUs/ TestJobsOpenTheirDevicesOnly/ TestDeviceRulesOutliveGnoded/ TestStepsOpenTheirDevicesOnly/ TestStepGroup \
        TestRootRaisesHardLimits TestShieldedFromOOMKiller; do
        grep -q -- "--- PASS: $t" "$work/out" || { cat "$work/out"; echo "cgroups-vm.sh: $t did not run on cgroup $v alone" >&2; exit 1; }
    done
    [ -z "${GBATCH_VM_VERBOSE-}" ] || cat "$work/out"
    echo "cgroup $v alone, Linux in QEMU: $(grep -c -- '^--- PASS' "$work/out") tests passed, $(grep -c -- '^--- SKIP' "$work/out" || true) skipped, $((SECONDS - began)) s"
    grep -- '^--- SKIP' "$work/out" || true
done
