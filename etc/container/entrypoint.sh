#!/bin/sh
# Prepares what a daemon needs in a container, then becomes the command that it is given.
#   GBATCH_CERTS   a directory with ca.crt and certificates for this host: they are copied where none are yet
#   GBATCH_TOKENS  a file with lines "NAME TOKEN@HOST" of `gbatch cert token`: the line of this host's name makes its certificate
#   GBATCH_NAME    this host's name there (default: the host name)
#   GBATCH_PKI     PKIDir of the configuration (default /var/lib/gbatch/pki, which is kept with the rest)
#   GBATCH_BEGIN=1 on the first controller: an empty one marks that a new cluster shall begin. It does not begin while another
#                  controller has state.
set -eu
pki=${GBATCH_PKI:-/var/lib/gbatch/pki}
name=${GBATCH_NAME:-$(hostname)}

if [ -n "${GBATCH_CERTS:-}" ] && [ ! -e "$pki/ca.crt" ]; then
    (umask 077 && mkdir -p "$pki" && cp -L "$GBATCH_CERTS"/*.crt "$GBATCH_CERTS"/*.key "$pki/")
fi
if [ -n "${GBATCH_TOKENS:-}" ] && [ ! -e "$pki/ca.crt" ]; then
    token=$(awk -v name="$name" '$1 == name { print $2; exit }' "$GBATCH_TOKENS")
    if [ -z "$token" ]; then
        echo "$GBATCH_TOKENS has no token for $name: gbatch cert token on a controller makes one" >&2
        exit 1
    fi
    "$@" --join "$token"
fi
if [ "${GBATCH_BEGIN:-}" = 1 ] && [ ! -e /var/lib/gbatch/ctld ]; then
    "$@" --begin
fi
# With cgroup v2, a group that hands controllers on can have no processes of its own: step aside, where that is allowed.
if [ "$1" = gnoded ] && [ -w /sys/fs/cgroup/cgroup.procs ]; then
    mkdir -p /sys/fs/cgroup/daemons
    for pid in $(cat /sys/fs/cgroup/cgroup.procs); do
        echo "$pid" >/sys/fs/cgroup/daemons/cgroup.procs 2>/dev/null || true
    done
fi
exec "$@"
