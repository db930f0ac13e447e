#!/bin/bash
# A job that runs into its time limit of two seconds: gacct shows TIMEOUT.
#SBATCH --job-name=overtime
#SBATCH --output=%x-%j.out
#SBATCH --time=0:02

echo "this would take a minute"
sleep 60
echo "never printed"
