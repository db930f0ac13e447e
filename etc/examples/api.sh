#!/bin/sh
# The small HTTP interface by curl; gbatch-api(7) explains it.
#
# URL is a controller's address, as "gbatch status" shows it, and SLURM_JWT a token:
#   eval "export $(scontrol token)"; URL=http://ctl1:6820 sh api.sh
# On a controller its socket needs no token:
#   SOCKET=/run/gbatch/http-ctl1 sh api.sh
set -eu
URL=${URL:-http://localhost:6820}
call() { curl -sS -f ${SOCKET:+--unix-socket "$SOCKET"} ${SLURM_JWT:+-H "Authorization: Bearer $SLURM_JWT"} "$@"; }

# Submit a task, and keep its number.
answer=$(call -H 'Content-Type: application/json' "$URL/api/v1/tasks" \
	-d '{"priority":"high","gpu_count":1,"command":"sleep 300"}')
echo "$answer"
task=$(echo "$answer" | sed 's/.*"task_id":"\([^"]*\)".*/\1/')

call "$URL/api/v1/tasks/$task"
call "$URL/api/v1/tasks?status=pending&limit=10"
call "$URL/api/v1/gpus"
call "$URL/api/v1/quota"
call "$URL/api/v1/queue-status"
call "$URL/api/v1/pools"
call "$URL/api/v1/openapi.json" > /dev/null

# Cancel it.
call -X DELETE "$URL/api/v1/tasks/$task"

# What has happened to it: the stream goes on until curl is told to stop.
call -N -m 1 "$URL/api/v1/events?since=0&job=${task#task-}" || true
