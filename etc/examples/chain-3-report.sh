#!/bin/bash
# Last of a chain: starts when chain-2-train.sh has ended well.
#SBATCH --job-name=report
#SBATCH --output=%x-%j.out
#SBATCH --time=5

echo "the model says: $(cat model.txt)"
