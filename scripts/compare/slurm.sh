#!/usr/bin/env bash
# Starts real Slurm with accounting (munged, mariadbd, slurmdbd, slurmctld and a slurmd for each node) under the directory $1,
# on ports from $2 on, away from any that is installed for use; `slurm.sh stop DIR` ends it. It needs root. The cluster is the
# one of $1/common.conf, with what only real Slurm needs put before it. Leaves $1/real/slurm.conf for SLURM_CONF.
set -euo pipefail
stop() { # DIR: ends what start began, by the processes' own numbers; real daemons have no other way to be found
    local f
    for f in "$1"/real/slurmd-*.pid "$1"/real/slurmctld.pid "$1"/real/slurmdbd.pid "$1"/real/maria.pid "$1"/real/munge.pid; do
        if [ -s "$f" ]; then
            kill "$(cat "$f")" 2>/dev/null || true
            for _ in $(seq 100); do
                kill -0 "$(cat "$f" 2>/dev/null)" 2>/dev/null || break
                sleep 0.1
            done
        fi
    done
}
if [ "$1" = stop ]; then
    stop "$2"
    exit
fi
dir=$1/real base=$2 common=$1/common.conf host=$(hostname -s)
mkdir -p "$dir/state" "$dir/munge" "$dir/db"
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 600 "$dir/munge/key"
chmod 755 "$1" "$dir" "$dir/munge"
munged --force --key-file="$dir/munge/key" --socket="$dir/munge/sock" --pid-file="$dir/munge.pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal --skip-test-db --datadir="$dir/db" \
    >"$dir/maria.log" 2>&1
setsid mariadbd --no-defaults --user=root --datadir="$dir/db" --socket="$dir/db.sock" --pid-file="$dir/maria.pid" \
    --bind-address=127.0.0.1 --port="$base" --innodb-buffer-pool-size=64M >>"$dir/maria.log" 2>&1 </dev/null &
for _ in $(seq 150); do
    mariadb --no-defaults -S "$dir/db.sock" -e 'select 1' >/dev/null 2>&1 && break
    sleep 0.1
done
mariadb --no-defaults -S "$dir/db.sock" -e "create user slurm@'127.0.0.1' identified by 'x';
    create user slurm@localhost identified by 'x'; grant all on *.* to slurm@'127.0.0.1'; grant all on *.* to slurm@localhost"
cat >"$dir/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=$((base + 1))
SlurmUser=root
LogFile=$dir/slurmdbd.log
PidFile=$dir/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$base
StorageUser=slurm
StoragePass=x
StorageLoc=acct
TrackWCKey=yes
CONF
chmod 600 "$dir/slurmdbd.conf"
{
    cat <<CONF
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
CredType=cred/munge
SlurmctldPort=$((base + 2))
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
ReturnToService=2
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((base + 1))
AccountingStoragePass=$dir/munge/sock
CONF
    # The nodes are all on this host, each on its port.
    awk -v host="$host" -v port=$((base + 3)) '/^NodeName=n\[/ {
        for (i = 1; i <= 4; i++) {
            line = $0
            sub(/n\[1-4\]/, "n" i, line)
            print line " NodeHostname=" host " NodeAddr=127.0.0.1 Port=" port + i
        }
        next
    } { print }' "$common"
} >"$dir/slurm.conf"
cp "$1/gres.conf" "$dir/gres.conf"
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$dir/cgroup.conf"
export SLURM_CONF=$dir/slurm.conf
slurmdbd >"$dir/slurmdbd.out" 2>&1
for _ in $(seq 150); do
    timeout 5 /usr/bin/sacctmgr -n list cluster >/dev/null 2>&1 && break
    sleep 0.1
done
/usr/bin/sacctmgr -iQ add cluster compare >/dev/null
slurmctld -f "$SLURM_CONF"
for i in 1 2 3 4; do slurmd -f "$SLURM_CONF" -N "n$i"; done
for _ in $(seq 150); do
    [ "$(/usr/bin/sinfo -h -p main -t idle -o %D 2>/dev/null)" = 4 ] && exit 0
    sleep 0.2
done
echo "compare: real Slurm did not come up; look into $dir/*.log" >&2
exit 1
