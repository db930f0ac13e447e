#!/bin/bash
#SBATCH --job-name=elastic --elastic=1-8 --gpus-per-node=1 --time=4:00:00
# An elastic job: gsubmit elastic.sh
#
# It starts with one node, grows into what is left over, up to eight, and gives nodes back when
# others need them. The script gets SIGWINCH when its nodes have changed, or will. It then reads the
# files beside $SLURM_JOB_ALLOCATION_FILE, and keeps one worker running on each node.

dir=${SLURM_JOB_ALLOCATION_FILE%/*}
changed=yes
trap 'changed=yes' WINCH

worker='echo "work on $(hostname), GPUs $CUDA_VISIBLE_DEVICES"; exec sleep 600' # put yours here
declare -A pid

follow() {
    local node
    # allocation.hosts has the nodes that stay: those that we are asked for are not in it
    mapfile -t nodes <"$dir/allocation.hosts"
    for node in "${!pid[@]}"; do
        if [[ " ${nodes[*]} " != *" $node "* ]]; then
            kill "${pid[$node]}" # let it save what it has; grun passes the signal on
            wait "${pid[$node]}"
            unset "pid[$node]"
        fi
    done
    grep -q '"leaving": true' "$SLURM_JOB_ALLOCATION_FILE" && gcontrol resize # we are ready to go
    for node in "${nodes[@]}"; do
        if [ -z "${pid[$node]}" ]; then
            grun -N1 -n1 -w "$node" bash -c "$worker" &
            pid[$node]=$!
        fi
    done
}

while :; do
    if [ -n "$changed" ]; then
        changed=
        follow
    fi
    wait -n # a worker has ended, or the signal came
    code=$?
    [ $code -gt 128 ] || break # 128 and more: the signal
done
