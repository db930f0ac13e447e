#!/bin/bash
# A job with GPUs: prints which it was given, and which of the node's the kernel lets it open.
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
# STANDIN_GPUS is where `gbatch up` keeps the stand-ins of a machine without GPUs.
for gpu in "${STANDIN_GPUS:+$STANDIN_GPUS/$SLURMD_NODENAME}"/nvidia[0-9]* /dev/nvidia[0-9]*; do
    [ -c "$gpu" ] || continue
    case $({ : <"$gpu"; } 2>&1) in
    *"not permitted"*) echo "${gpu##*/}: denied by the kernel" ;;
    *) echo "${gpu##*/}: opens" ;;
    esac
done
sleep 3
