#!/bin/bash
# First of a chain. Submit all three with
#   id=$(gsubmit --parsable chain-1-prepare.sh)
#   id=$(gsubmit --parsable -d afterok:$id chain-2-train.sh)
#   gsubmit -d afterok:$id chain-3-report.sh
#SBATCH --job-name=prepare
#SBATCH --output=%x-%j.out
#SBATCH --time=5

seq 1 1000 > data.txt
echo "prepared $(wc -l < data.txt) samples"
