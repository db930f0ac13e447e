#!/bin/bash
# A job with GPUs: prints which it was given.
#SBATCH --job-name=gpu
#SBATCH --output=%x-%j.out
#SBATCH --gres=gpu:1
#SBATCH --time=5

echo "job $SLURM_JOB_ID on $SLURMD_NODENAME"
echo "its GPUs among the node's: SLURM_JOB_GPUS=$SLURM_JOB_GPUS"
echo "the devices for CUDA:      CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
if command -v nvidia-smi >/dev/null; then
    nvidia-smi -L
fi
sleep 3
