#!/bin/sh
# Epilog=/etc/gbatch/epilog-mps.sh: ends the MPS control daemon of a user on a GPU (see prolog-mps.sh) when none of its servers
# has clients any more. A later job of the user starts it anew.
set -eu
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || exit 0
dir=/run/nvidia-mps/$SLURM_JOB_UID/gpu$SLURM_JOB_GPUS
[ -d "$dir" ] || exit 0
exec 9>"$dir/lock"
flock 9
control() { CUDA_MPS_PIPE_DIRECTORY=$dir/pipe setpriv --reuid "$SLURM_JOB_UID" --clear-groups nvidia-cuda-mps-control; }
for server in $(echo get_server_list | control 2>/dev/null || true); do
	[ -z "$(echo "get_client_list $server" | control 2>/dev/null)" ] || exit 0
done
echo quit | control >/dev/null 2>&1 || true
