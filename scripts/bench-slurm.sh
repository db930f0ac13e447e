#!/usr/bin/env bash
# Starts real Slurm on this machine for scripts/bench.sh, away from any that is installed for use: slurmctld and four
# slurmd of 16 CPUs under the directory $1, with settings for many short jobs. No slurmdbd: that flatters it.
# Prints nothing; leaves $1/slurm.conf for SLURM_CONF. Ends with an error where a daemon doesn't come up.
set -euo pipefail
dir=$1
host=$(hostname -s)
mkdir -p "$dir/state" "$dir/munge"
# Its own munge: an installed one may not run, and its key is nobody's business.
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 600 "$dir/munge/key"
chmod 755 "$dir/munge"
munged --force --key-file="$dir/munge/key" --socket="$dir/munge/sock" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
base=$((20000 + RANDOM % 10000))
cat >"$dir/slurm.conf" <<CONF
ClusterName=bench
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
CryptoType=crypto/munge
SlurmctldPort=$base
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,default_queue_depth=2000,bf_interval=5
SlurmdParameters=config_overrides
MaxJobCount=200000
MaxArraySize=100001
MinJobAge=300
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/completed
AccountingStorageType=accounting_storage/none
CONF
for i in 1 2 3 4; do
    echo "NodeName=s$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + i)) CPUs=16 RealMemory=1000 State=UNKNOWN" >>"$dir/slurm.conf"
done
echo "PartitionName=main Nodes=s[1-4] Default=YES MaxTime=INFINITE State=UP" >>"$dir/slurm.conf"
export SLURM_CONF=$dir/slurm.conf
slurmctld -f "$SLURM_CONF"
for i in 1 2 3 4; do slurmd -f "$SLURM_CONF" -N "s$i"; done
for _ in $(seq 150); do
    [ "$(/usr/bin/sinfo -h -t idle -o %D 2>/dev/null)" = 4 ] && exit 0
    sleep 0.2
done
echo "bench: real Slurm did not come up; look into $dir/*.log" >&2
exit 1
