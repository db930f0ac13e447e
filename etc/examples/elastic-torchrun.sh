#!/bin/bash
#SBATCH --job-name=torchrun --elastic=gpus:8-64 --gpus-per-node=8 --cpus-per-task=32
#SBATCH --elastic-grace=120 --time=1-0
# PyTorch's elastic launcher in an elastic job: gsubmit elastic-torchrun.sh train.py
#
# torchrun runs once on each node; its agents meet at the first node, start the workers anew when
# nodes come or go, and train.py goes on from its last checkpoint. See
# https://docs.pytorch.org/docs/stable/elastic/run.html

dir=${SLURM_JOB_ALLOCATION_FILE%/*}
head=$(head -n1 "$dir/allocation.hosts")
least=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["min_nodes"])' "$SLURM_JOB_ALLOCATION_FILE")
most=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["max_nodes"])' "$SLURM_JOB_ALLOCATION_FILE")
changed=yes
trap 'changed=yes' WINCH
declare -A pid

follow() { # [ARGUMENTS of torchrun]
    local node
    mapfile -t nodes <"$dir/allocation.hosts"
    for node in "${!pid[@]}"; do
        if [[ " ${nodes[*]} " != *" $node "* ]]; then
            kill "${pid[$node]}" # the agent leaves; the others go on without it
            wait "${pid[$node]}"
            unset "pid[$node]"
        fi
    done
    grep -q '"leaving": true' "$SLURM_JOB_ALLOCATION_FILE" && gcontrol resize
    for node in "${nodes[@]}"; do
        if [ -z "${pid[$node]}" ]; then
            host=false # whether the rendezvous is there: torchrun's own guess goes by addresses
            [ "$node" != "$head" ] || host=true
            grun -N1 -n1 -w "$node" torchrun --nnodes="$least:$most" --nproc-per-node=gpu \
                --max-restarts=100 --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d \
                --rdzv-endpoint="$head:29500" --rdzv-conf=is_host=$host "$@" &
            pid[$node]=$!
        fi
    done
}

while :; do
    if [ -n "$changed" ]; then
        changed=
        follow "$@"
    fi
    ended=
    wait -n -p ended
    code=$?
    [ -n "$ended" ] || continue # a signal
    for node in "${!pid[@]}"; do
        [ "${pid[$node]}" != "$ended" ] || break
    done
    unset "pid[$node]"
    if [ $code -eq 0 ]; then
        until wait; do :; done # the training has ended: the other agents are about to
        exit 0
    fi
    sleep 2 # its node may be about to go
    ! grep -qx "$node" "$dir/allocation.hosts" || exit $code
done
