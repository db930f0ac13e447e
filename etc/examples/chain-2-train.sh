#!/bin/bash
# Second of a chain: starts when chain-1-prepare.sh has ended well.
#SBATCH --job-name=train
#SBATCH --output=%x-%j.out
#SBATCH --gres=gpu:1
#SBATCH --time=5

for epoch in 1 2 3; do
    sleep 1
    echo "epoch $epoch on GPU $SLURM_JOB_GPUS: loss 0.$((90 / epoch))"
done
awk '{ sum += $1 } END { print sum / NR }' data.txt > model.txt
