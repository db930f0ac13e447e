#!/bin/sh
# Makes the cluster's certificate authority and the certificates of hosts below DIR, for a cluster that has no leader yet:
# DIR/NAME (DIR/NAME/$BELOW, if that is set) has what the host NAME needs. What is there is left alone.
# usage: certificates.sh DIR CLUSTER ROLE:NAME...
set -eu
dir=$1 cluster=$2
shift 2
umask 077
mkdir -p "$dir"
[ -e "$dir/ca/ca.crt" ] || gbatch cert init "$cluster" --pki "$dir/ca"
for host in "$@"; do
    role=${host%%:*} name=${host#*:}
    to=$dir/$name${BELOW:+/$BELOW}
    [ ! -e "$to/ca.crt" ] || continue
    mkdir -p "$to"
    gbatch cert issue "$role" "$name" --pki "$dir/ca" --out "$to"
    cp "$dir/ca/ca.crt" "$to/"
    if [ "$role" = ctld ]; then cp "$dir/ca/ca.key" "$to/"; fi # whoever leads renews certificates
done
