#!/bin/bash
# A job that fails: gacct shows FAILED and the exit code 3:0.
#SBATCH --job-name=fail
#SBATCH --output=%x-%j.out
#SBATCH --time=5

echo "something is wrong" >&2
exit 3
