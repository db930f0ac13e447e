#!/usr/bin/env python3
# GresHelper=/etc/gbatch/gres-helper.py: connects a job with its remote GPUs. It runs beside the job, as its user, opens a
# port on loopback for each endpoint, and passes bytes on to there and back. The job is told RGPU_SERVER, its own ports.
# See gbatch-hooks(7). It looks into no byte: what the two sides say to each other is theirs.
import json
import socket
import sys
import threading


def pump(source, target):
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            target.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def serve(door, host, port):
    while True:
        client, _ = door.accept()
        try:
            server = socket.create_connection((host, port), timeout=10)
        except OSError as why:
            print("%s:%d: %s" % (host, port, why), file=sys.stderr)
            client.close()
            continue
        server.settimeout(None)
        for pair in ((client, server), (server, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def main():
    job = json.loads(sys.stdin.readline())
    ports = []
    for unit in job["units"]:
        host, _, port = unit["endpoint"].rpartition(":")
        if not host:
            return {"error": "gres.conf has no Endpoint for remote GPU %d" % unit["index"]}
        door = socket.create_server(("127.0.0.1", 0))
        ports.append("127.0.0.1:%d" % door.getsockname()[1])
        threading.Thread(target=serve, args=(door, host.strip("[]"), int(port)), daemon=True).start()
    return {"env": {"RGPU_SERVER": ",".join(ports)}}


print(json.dumps(main()), flush=True)
sys.stdin.read()  # it ends with the job
