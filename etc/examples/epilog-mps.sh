#!/bin/sh
# Epilog=/etc/gbatch/epilog-mps.sh: ends the MPS control daemon of a user on a GPU (see prolog-mps.sh) with the user's last
# job there. A later job of the user starts it anew.
set -eu
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || exit 0
dir=/run/nvidia-mps/$SLURM_JOB_UID/gpu$SLURM_JOB_GPUS
[ -d "$dir" ] || exit 0
exec 9>"$dir/lock"
flock 9
rm -f "$dir/jobs/$SLURM_JOB_ID"
[ -z "$(ls "$dir/jobs")" ] || exit 0 # others of the user share the GPU, though they may have no client at present
echo quit | CUDA_MPS_PIPE_DIRECTORY=$dir/pipe setpriv --reuid "$SLURM_JOB_UID" --clear-groups nvidia-cuda-mps-control >/dev/null 2>&1 || true
