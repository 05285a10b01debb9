#!/usr/bin/env bash
# The linker of the filter's module. rustc asks it to export every callback that the SDK has; `--exports=NAME,NAME` keeps only
# those, and what only the others need is dropped. Binaryen would drop their code, but it cannot tell which data was theirs.
set -euo pipefail
kept=
for argument; do
  [[ $argument != --exports=* ]] || kept=,${argument#*=},
done
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --exports=*) ;;
    --export)
      shift
      [[ $kept != *,$1,* ]] || arguments+=(--export "$1")
      ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
exec "$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin/rust-lld" "${arguments[@]}"
