#!/bin/sh
# Prolog=/etc/gbatch/prolog-mps.sh: starts NVIDIA's MPS for a job that asks for it (gsubmit --gres=mps:50), as root, before the
# job begins. There is one control daemon for each user and GPU: it outlives the job, since others of the user may share the
# GPU, and the epilog (epilog-mps.sh) ends it with the user's last job on that GPU. gnoded sets CUDA_MPS_PIPE_DIRECTORY and
# CUDA_MPS_LOG_DIRECTORY of such a job to /run/nvidia-mps/UID/gpuN/pipe and .../log, and SLURM_JOB_GPUS to N.
set -eu
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || exit 0 # no job with mps

uid=$SLURM_JOB_UID gpu=$SLURM_JOB_GPUS
dir=/run/nvidia-mps/$uid/gpu$gpu
umask 022
mkdir -p "$dir/pipe" "$dir/log" "$dir/jobs" # all but the first two stay root's
chown "$uid" "$dir/pipe" "$dir/log"
chmod 700 "$dir/pipe" "$dir/log"

exec 9>"$dir/lock"
flock 9 # jobs may begin at the same time
: >"$dir/jobs/$SLURM_JOB_ID" # the epilog counts them
# A running daemon answers. The one that is started sees this GPU alone, so that its clients count it as 0.
if ! echo get_server_list | CUDA_MPS_PIPE_DIRECTORY=$dir/pipe setpriv --reuid "$uid" --clear-groups nvidia-cuda-mps-control >/dev/null 2>&1; then
	CUDA_VISIBLE_DEVICES=$gpu CUDA_MPS_PIPE_DIRECTORY=$dir/pipe CUDA_MPS_LOG_DIRECTORY=$dir/log \
		setpriv --reuid "$uid" --clear-groups nvidia-cuda-mps-control -d 9>&-
fi
