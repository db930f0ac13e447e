#!/usr/bin/env python3
"""The small HTTP interface from Python, without any package; gbatch-api(7) explains it.

    eval "export $(scontrol token)"
    python3 api.py http://ctl1:6820 python train.py --epochs 100

On a controller its socket needs no token:

    python3 api.py unix:///run/gbatch/http-ctl1 hostname
"""

import http.client
import json
import os
import shlex
import socket
import sys
import urllib.parse


class Unix(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path):
        super().__init__("gbatch")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Cluster:
    """A cluster at http://HOST:PORT, https://HOST:PORT or unix://PATH."""

    def __init__(self, url, token=None):
        self.url = urllib.parse.urlsplit(url)
        self.headers = {"Authorization": "Bearer " + token} if token else {}

    def open(self, method, path, body=None):
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if self.url.scheme == "unix":
            conn = Unix(self.url.path)
        else:
            conn = kinds[self.url.scheme](self.url.netloc)
        conn.request(method, path, body and json.dumps(body), self.headers)
        return conn.getresponse()

    def call(self, method, path, body=None):
        answer = self.open(method, "/api/v1" + path, body)
        out = json.load(answer)
        if answer.status >= 300:
            raise RuntimeError(out.get("error", answer.reason))
        return out

    def events(self, query):
        """Yields what happens, for ever."""
        stream, word = self.open("GET", "/api/v1/events?" + query), ""
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                word = text[7:]
            elif text.startswith("data: ") and not word:
                yield json.loads(text[6:])
            elif not text:
                word = ""


def main():
    cluster = Cluster(sys.argv[1], os.environ.get("SLURM_JWT"))
    task = cluster.call("POST", "/tasks", {"priority": "high", "command": shlex.join(sys.argv[2:]),
                                            "environment": dict(os.environ)})
    number = task["task_id"].removeprefix("task-")
    for event in cluster.events("since=0&job=" + number):
        print(event["time"], event["kind"], event["state"], flush=True)
        if event["kind"] == "task_finished":
            break
    done = cluster.call("GET", "/tasks/" + task["task_id"])
    print(done["task_id"], done["status"])
    return 0 if done["status"] == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
