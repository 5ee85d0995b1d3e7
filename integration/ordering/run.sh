#!/bin/sh
# Checks the order of keyed messages at full size, and prints a report:
# 1,000,000 messages over 1,000 keys on PostgreSQL (GOCAP_POSTGRES_DSN, else the
# one at 127.0.0.1:5432), an instance killed or replaced every 5 s.
#
#   ./run.sh                                     # the full size
#   GOCAP_ORDER_MESSAGES=100000 ./run.sh         # smaller
#   ON=SQLite GOCAP_ORDER_MESSAGES=50000 ./run.sh
#
# GOCAP_ORDER_SEED repeats the choices of a run (not the scheduling).
set -eu
cd "$(dirname "$0")"
: "${GOCAP_ORDER_MESSAGES:=1000000}" "${GOCAP_ORDER_KEYS:=1000}" "${GOCAP_ORDER_INSTANCES:=4}"
: "${GOCAP_ORDER_BATCH:=100}" "${GOCAP_ORDER_DISTURB_MS:=5000}" "${ON:=Postgres}"
export GOCAP_ORDER_MESSAGES GOCAP_ORDER_KEYS GOCAP_ORDER_INSTANCES GOCAP_ORDER_BATCH GOCAP_ORDER_DISTURB_MS
exec go test -count=1 -timeout=6h -v -run "TestNoInversionOn$ON" .
