#!/usr/bin/env bash
# A million lines of each format: what `leapgate replay` takes for them, beside `gzip -t` of the same log, and its memory. Of five runs of
# each the fastest counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
TARGET=${CARGO_TARGET_DIR:-target}
bin=$TARGET/release
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cat >"$work/rules.json" <<'RULES'
{"flowRules": [
  {"resource": "login", "id": "login", "count": 5, "intervalMs": 10000, "key": ["clientIp"]},
  {"resource": "api", "id": "api", "count": 100}
]}
RULES

# The fastest of five runs, in milliseconds.
fastest() {
  local best=999999999 start took
  for _ in 1 2 3 4 5; do
    start=$(date +%s%N)
    "$@" >/dev/null
    took=$((($(date +%s%N) - start) / 1000000))
    [ $took -ge $best ] || best=$took
  done
  echo $best
}

for format in istio combined; do
  "$bin/examples/make_log" $format 1000000 | gzip >"$work/$format.log.gz"
  replay=("$bin/leapgate" replay "$work/rules.json" "$work/$format.log.gz" --route /login=login --route /api=api)
  gzip=$(fastest gzip -t "$work/$format.log.gz")
  took=$(fastest "${replay[@]}")
  peak=$(python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' "${replay[@]}")
  echo "replay of 1,000,000 lines, $format: $took ms; gzip -t: $gzip ms; ratio $(awk "BEGIN { printf \"%.2f\", $took / $gzip }"); peak memory $peak MB"
done
