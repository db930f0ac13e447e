#!/usr/bin/env python3
# JobSubmitProgram=/etc/gbatch/hook-gpu-memory.py: gives a job with GPUs, which does not say how much of a GPU's memory
# it needs (--gpu-mem), an estimate. Users describe what they compute in the comment:
#
#   gsubmit -G1 --comment "model=mace atoms=1200 task=stability" job.sh
#
# Estimate in MB = (memory of the model + 2 for each atom) * factor of the task. See gbatch-hooks(7).
import json
import sys

MODEL_MB = {}  # by name in small letters, such as "mace": 6000
DEFAULT_MODEL_MB = 4000
MB_PER_ATOM = 2
DEFAULT_ATOMS = 500
FACTOR = {"optimization": 1.2, "stability": 1.5, "heat-capacity": 2.0, "bulk-modulus": 1.3}


def estimate(words):
    try:
        atoms = int(words.get("atoms", DEFAULT_ATOMS))
    except ValueError:
        return None, "atoms=%s in --comment is no number" % words["atoms"]
    model = MODEL_MB.get(words.get("model", "").lower(), DEFAULT_MODEL_MB)
    return int((model + MB_PER_ATOM * atoms) * FACTOR.get(words.get("task", ""), 1.0)), None


def main():
    call = json.load(sys.stdin)
    job = call["job"]
    asks = " ".join(job.get(k, "") for k in ("tres_per_node", "tres_per_job", "tres_per_task"))
    words = dict(w.split("=", 1) for w in job.get("comment", "").split() if "=" in w)
    if call["action"] != "submit" or "gpu" not in asks or "gpu_mem" in job or not words:
        return {}
    mb, wrong = estimate(words)
    if wrong:
        return {"refuse": wrong}
    return {"set": {"gpu_mem": mb}, "message": "estimated %d MB of GPU memory; --gpu-mem says it better" % mb}


json.dump(main(), sys.stdout)
