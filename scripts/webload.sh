#!/usr/bin/env bash
# How much do clients over HTTP slow submissions? A fresh cluster with 1,000 jobs is asked for 2,000 pings and 300 lists of
# all jobs a second, compressed as most clients ask for them, while two loops of gsubmit submit as fast as they can. In
# turns: alone, beside, alone, beside, ... The share is that of the same run.
#
# The one who asks stands for other hosts, and takes CPU of this one. So the last share compares with runs beside a program
# that takes as much CPU as that one and asks nothing. Prints the CPU of gctld for each request too: on a busy machine
# believe that.
# Takes two minutes.
#
#   scripts/webload.sh [ROUNDS [PINGS LISTS]]       3 rounds, 2000 and 300 a second without them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/bin:$PATH"
[ -x bin/gcli ] || make --no-print-directory build
rounds=${1:-3} pings=${2:-2000} lists=${3:-300}
work=$(mktemp -d "${TMPDIR:-/tmp}/gbatch-webload.XXXXXX")
dir=$work/cluster
trap 'gbatch down --dir "$dir" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT INT TERM
go build -o "$work/bench" ./scripts/bench
go build -o "$work/webload" ./scripts/webload
printf '#!/bin/sh\ntrue\n' >"$work/true.sh"
gbatch up --nodes 2 --cpus 16 --gpus a100:4 --dir "$dir" --detach >"$work/up"
export GBATCH_CONF=$dir/gbatch.conf
# Jobs that were submitted to measure go at once, so that lists stay as long as they are.
printf 'MaxJobCount=1000000\nMinJobAge=2\n' >>"$GBATCH_CONF"
gcontrol reconfigure >/dev/null
url=$(grep -o 'http://[^ ]*' "$work/up" | head -n 1)
token=$(gcontrol token lifespan=3600 | cut -d= -f2-)
cd "$work"
./bench loop -n 1000 -c 2 -- gsubmit -H -J kept -o /dev/null true.sh >/dev/null
ticks=$(getconf CLK_TCK)
gctld=$(pgrep -f "gctld -f $dir")
cpu_of() { sed 's/^.*) //' "/proc/$gctld/stat" | awk -v t="$ticks" '{ print ($12 + $13) / t }'; }
lasts=5
# submissions: how many a second, while jobs of the measurement are cancelled every second
submissions() {
    (for _ in $(seq $lasts); do sleep 1; gcancel --name sub >/dev/null 2>&1 || true; done) &
    ./bench loop -open -n 1000000 -c 2 -t ${lasts}s -- gsubmit -H -J sub -o /dev/null true.sh | cut -d' ' -f1
    wait $!
}
read -r true_rate _ < <(./bench loop -n 300 -c 1 -- /bin/true)
echo "the machine now: $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), /bin/true $true_rate/s (1,400 where it is quiet)"
./webload -url "$url" -token "$token" -ping $pings -jobs $lists -gzip -t 2s >said # so that everything is warm
burn=$(awk '$1 == "cpu" { print $2 }' said)
printf '%-28s %9s %9s %9s  %s\n' "submissions a second" alone beside share "what was asked meanwhile"
: >all
for _ in $(seq "$rounds"); do
    alone=$(submissions)
    ./webload -burn "$burn" -t ${lasts}s >/dev/null &
    burner=$!
    burned=$(submissions)
    wait $burner
    before=$(cpu_of)
    ./webload -url "$url" -token "$token" -ping $pings -jobs $lists -gzip -t ${lasts}s >said &
    asker=$!
    beside=$(submissions)
    wait $asker
    cpu=$(awk -v a="$before" -v b="$(cpu_of)" -v t=$lasts 'BEGIN { print (b - a) / t }')
    burn=$(awk '$1 == "cpu" { print $2 }' said)
    echo "$alone $burned $beside $cpu $burn" >>all
    printf '%-28s %9s %9s %8.0f%%  %s\n' "" "$alone" "$beside" "$(awk "BEGIN { print 100 * $beside / $alone }")" "$(awk '
        $1 == "cpu" { printf "client %.2f of a core", $2; next }
        { printf "%s %s/s, %s / %s ms, %s failed; ", $1, $2, $3, $4, $5 }' said), gctld $(printf %.2f "$cpu")"
done
awk '{ a += $1; u += $2; b += $3 } END {
    printf "share: %.0f%%; of what is left beside a program that takes the client'"'"'s CPU: %.0f%%\n", 100 * b / a, 100 * b / u }' all
# What one request costs, without submissions beside it.
for what in "-ping 1000" "-jobs 100 -gzip" "-jobs 20"; do
    before=$(cpu_of)
    ./webload -url "$url" -token "$token" $what -t 3s >said
    awk -v a="$before" -v b="$(cpu_of)" -v w="$what" '$1 != "cpu" {
        printf "%-16s %6.0f us of gctld, %d bytes each\n", w, (b - a) / 3 / $2 * 1e6, $6 }' said
done
