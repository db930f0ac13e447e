#!/bin/bash
# An array: six tasks of one script, at most three of them at a time.
#SBATCH --job-name=array
#SBATCH --output=%x-%A_%a.out
#SBATCH --array=0-5%3
#SBATCH --time=5

echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT on $SLURMD_NODENAME: its square is $((SLURM_ARRAY_TASK_ID * SLURM_ARRAY_TASK_ID))"
sleep 2
