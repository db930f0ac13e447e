#!/usr/bin/env python3
# JobEventProgram=/etc/gbatch/job-events.py: appends a line to a file for each event of a job. An event that comes again,
# after another controller has taken the lead, is left out. See gbatch-hooks(7).
import fcntl
import json
import os
import sys

FILE = os.environ.get("JOB_EVENTS_FILE", "/var/log/gbatch/job-events.jsonl")
LOOK_BACK = 1 << 20  # bytes

event = json.load(sys.stdin)
with open(FILE, "a+") as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    f.seek(0, os.SEEK_END)
    f.seek(max(0, f.tell() - LOOK_BACK))
    if '"id": "%s"' % event["id"] not in f.read():
        f.write(json.dumps(event) + "\n")
