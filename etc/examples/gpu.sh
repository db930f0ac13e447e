#!/bin/bash
# A job with GPUs: prints which it was given.
#SBATCH --job-name=gpu
#SBATCH --output=%x-%j.out
#SBATCH --gres=gpu:1
#SBATCH --time=5

echo "job $SLURM_JOB_ID on $SLURMD_NODENAME, CPUs: $SLURM_CPUS_ON_NODE"
echo "GPUs of the node that are ours:     SLURM_JOB_GPUS=$SLURM_JOB_GPUS"
echo "what CUDA sees, counted from zero:  CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
if command -v nvidia-smi >/dev/null; then
    nvidia-smi -L
fi
sleep 1
