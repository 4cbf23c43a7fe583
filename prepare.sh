#!/usr/bin/env bash
# Prepares what the runs of one mode need: the environment (.venv), the data, the weights. Repeating it is cheap,
# interrupting it harmless: what is half-made is never taken for complete.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
MODES="lite_train_lite_infer lite_train_whole_infer whole_train_whole_infer whole_infer klquant_whole_infer"
ENVIRONMENT="$ROOT/tools/environment.sh"

# Prints a progress line.
say() { printf 'prepare: %s\n' "$*" >&2; }

# Prints a fact and, as further arguments, what to do about it; ends with exit code 2.
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 2
}

# Prints what went wrong in the call, if given, and the usage; ends with exit code 2.
usage() {
  (($# == 0)) || say "$@"
  cat >&2 <<END
usage: bash prepare.sh PARAMS MODE [options]
  PARAMS             TIPC parameter file, e.g. test_tipc/configs/alexnet/train_infer_python.txt
  MODE               one of: $MODES
  --env-only         only the environment (PARAMS and MODE may be left out)
  --data-only        only the data, in the environment that is there; uses no network
  --force            make the data and weights anew (with --env-only the environment)
  --python PATH      use this Python's environment as it is instead of .venv (default: \$TIPCHAIN_PYTHON)
  --data-path PATH   use this data folder instead of the shipped one, laid out alike: train/<class>/ and val/<class>/, for example
  --dev              with the tools that tests/run.sh needs
END
  exit 2
}

# Sets the globals params, mode, env_only, data_only, force, dev, python and data_path from the arguments.
parse_arguments() {
  local words=()
  env_only="" data_only="" force="" dev="" data_path="" python="${TIPCHAIN_PYTHON:-}"
  while (($#)); do
    case "$1" in
      --env-only) env_only=1 ;;
      --data-only) data_only=1 ;;
      --force) force=1 ;;
      --dev) dev=1 ;;
      --python | --data-path)
        [[ -n ${2:-} ]] || usage "$1 needs a path"
        if [[ $1 == --python ]]; then python="$2"; else data_path="$2"; fi
        shift
        ;;
      -h | --help) (usage) 2>&1 || exit 0 ;;
      -*) usage "unknown option $1" ;;
      *) words+=("$1") ;;
    esac
    shift
  done
  [[ -z $env_only || -z $data_only ]] || usage "--env-only and --data-only exclude each other"
  if [[ -n $env_only && ${#words[@]} == 0 ]]; then return; fi # the environment is the same for all
  ((${#words[@]} == 2)) || usage
  params="${words[0]}" mode="${words[1]}"
  [[ " $MODES " == *" $mode "* && $mode != *" "* ]] || die "unknown mode '$mode'" "expected one of: $MODES"
  # A path is one from where the caller stands, or else from the project's root.
  [[ -e $params || ! -e $ROOT/$params ]] || params="$ROOT/$params"
  [[ -f $params ]] || die "$params: no such parameter file"
}

# Sets the global python to the interpreter to use, whose environment is checked or made first.
choose_python() {
  if [[ -n $python ]]; then
    python="$(command -v "$python")" || die "--python $python: no such program"
    # tipchain need not be installed in an environment of the user's own.
    export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
    bash "$ENVIRONMENT" check "$python"
    return
  fi
  python="$ROOT/.venv/bin/python"
  if [[ -z $data_only ]]; then
    bash "$ENVIRONMENT" make "$dev" "${env_only:+$force}"
  elif ! bash "$ENVIRONMENT" is-complete; then
    die "there is no complete environment yet, and --data-only installs nothing" \
      "make it first: bash prepare.sh $params $mode --env-only"
  fi
}

main() {
  local options=()
  trap 'say "interrupted; repeat the command to go on"; exit 130' INT
  parse_arguments "$@"
  choose_python
  [[ -z $env_only ]] || return 0
  [[ -z $data_only ]] || options+=(--data-only)
  [[ -z $force ]] || options+=(--force)
  [[ -z $data_path ]] || options+=(--data-path "$data_path")
  exec "$python" -m tipchain prepare "$params" "$mode" "${options[@]}"
}

main "$@"
