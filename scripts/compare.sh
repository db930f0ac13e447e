#!/usr/bin/env bash
# Compares what gbatch's commands print with what real Slurm's do: the same workload on both, then every field, sort, filter
# and list, line by line (scripts/compare/cases.txt). Needs root and Slurm: apt-get install slurm-wlm slurmdbd mariadb-server
# munge. Exit code 75: they are not there. Differences on purpose stand in scripts/compare/differences.txt with their reasons.
#
#   scripts/compare.sh [--keep DIR] [--fuzz N [--seed S] [--of queries|submissions]]
#
# --keep: work in DIR and leave both clusters running; `scripts/compare.sh --stop DIR` ends them.
# --fuzz: in place of the cases, N random command lines of each sort (scripts/compare/fuzz.go), the first of seed S (1). What
# differs is grouped by cause; `--fuzz 1 --seed S --of SORT` repeats one line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
keep=
lines=()
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=$2 ;;
    --fuzz | --seed | --of) lines+=("-${1#--}" "$2") ;;
    --stop)
        bin/gbatch down --dir "$2/ours" >/dev/null || true
        scripts/compare/slurm.sh stop "$2"
        exit
        ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
for p in slurmctld slurmd slurmdbd mariadbd munged; do
    if ! PATH=$PATH:/usr/sbin command -v "$p" >/dev/null; then
        echo "NOT RUN: real Slurm is not installed here ($p is missing)"
        exit 75
    fi
done
if [ "$(id -u)" != 0 ]; then
    echo "NOT RUN: real Slurm's daemons need root"
    exit 75
fi
export PATH=$PATH:/usr/sbin
[ -x bin/gcli ] || make --no-print-directory build
work=${keep:-$(mktemp -d "${TMPDIR:-/tmp}/gbatch-compare.XXXXXX")}
mkdir -p "$work/dev" "$work/conf" "$work/compat"
chmod 755 "$work"
cleanup() {
    [ -z "$keep" ] || return 0
    bin/gbatch down --dir "$work/ours" >/dev/null 2>&1 || true
    scripts/compare/slurm.sh stop "$work"
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
for n in sbatch squeue scancel sacct sinfo scontrol srun salloc sshare sprio sacctmgr sdiag sstat seff sreport sattach sbcast; do
    ln -sfn "$PWD/bin/gcli" "$work/compat/$n"
done
touch "$work"/dev/gpu{0,1,2,3}
cp scripts/compare/common.conf "$work/common.conf"
echo "NodeName=n[1-4] Name=gpu Type=a100 File=$work/dev/gpu[0-3]" >"$work/gres.conf"
{ echo "SlurmctldHost=$(hostname -s)"; echo "AccountingStorageHost=$(hostname -s)"; cat "$work/common.conf"; } >"$work/conf/slurm.conf"
cp "$work/gres.conf" "$work/conf/gres.conf"
scripts/compare/slurm.sh "$work" $((20000 + RANDOM % 10000))
bin/gbatch up --detach --conf "$work/conf/slurm.conf" --dir "$work/ours" >"$work/up.log" || { cat "$work/up.log" >&2; exit 1; }
go build -o "$work/compare" ./scripts/compare
(cd /tmp && "$work/compare" -real "/usr/bin:$work/real/slurm.conf" -ours "$work/compat:$work/ours/gbatch.conf" \
    "${lines[@]}" "$OLDPWD/scripts/compare")
