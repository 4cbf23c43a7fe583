#!/usr/bin/env bash
# Run a TIPC chain: alignment, then train, eval, export and inference.
#
#   bash test_train_inference_python.sh PARAMS MODE [GPU_ID] [--data-path DIR]
#
# PARAMS is relative to the folder you are in or to the project. GPU_ID is CUDA_VISIBLE_DEVICES in whole_infer.
# What is missing (environment, data) is set up first by prepare.sh. The interpreter is $TIPCHAIN_PYTHON, or
# .venv/bin/python of the project. Exit codes: 0 all passed, 1 something failed, 2 wrong use, 4 nothing was run.
set -euo pipefail

usage() {
  cat >&2 <<'USAGE'
usage: bash test_train_inference_python.sh PARAMS MODE [GPU_ID] [--data-path DIR]

  PARAMS  parameter file, as test_tipc/configs/alexnet/train_infer_python.txt
  MODE    lite_train_lite_infer, lite_train_whole_infer, whole_train_whole_infer or whole_infer
  GPU_ID  CUDA_VISIBLE_DEVICES in whole_infer
  DIR     images of your own, train/<class>/ and val/<class>/, in place of the shipped ones
USAGE
  exit 2
}

# Prints the path of the file $1, looked for in the caller's folder and then in the project $2.
find_params() { # <params> <project>
  local place
  for place in "$1" "$2/$1"; do
    if [[ -f "${place}" ]]; then
      printf '%s\n' "$(cd -- "$(dirname -- "${place}")" && pwd)/$(basename -- "${place}")"
      return 0
    fi
  done
  printf 'error: no parameter file %s, neither here nor in %s\n' "$1" "$2" >&2
  return 2
}

main() {
  local words=() data=()
  while (($#)); do
    case "$1" in
      --data-path)
        [[ -d "${2:-}" ]] || usage
        data=(--data-path "$(cd -- "$2" && pwd)")
        shift
        ;;
      -*) usage ;;
      *) words+=("$1") ;;
    esac
    shift
  done
  set -- "${words[@]}"
  (($# == 2 || $# == 3)) || usage
  case "$2" in
    lite_train_lite_infer | lite_train_whole_infer | whole_train_whole_infer | whole_infer) ;;
    *)
      printf 'error: unknown mode %s\n' "$2" >&2
      usage
      ;;
  esac

  local project params python
  project="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
  params="$(find_params "$1" "${project}")"
  # Shorter messages, and the same plan wherever the driver is called from.
  params="${params#"${project}/"}"
  if [[ "${TIPCHAIN_PYTHON:-}" == */* && "${TIPCHAIN_PYTHON}" != /* ]]; then
    export TIPCHAIN_PYTHON="${PWD}/${TIPCHAIN_PYTHON}"
  fi
  python="${TIPCHAIN_PYTHON:-${project}/.venv/bin/python}"
  # tipchain need not be installed in an environment of the user's own.
  export PYTHONPATH="${project}${PYTHONPATH:+:${PYTHONPATH}}"

  cd -- "${project}"
  local status=0
  bash prepare.sh "${params}" "$2" "${data[@]}" || status=$?
  # 1 says that the port does not take the weights: the alignment steps report that, and the chain still runs.
  ((status <= 1)) || exit "${status}"
  local run=("${python}" -m tipchain run "${params}" "$2" "${data[@]}" ${3:+--gpu-id "$3"})
  [[ -z "${TIPCHAIN_PYTHON:-}" ]] || run+=(--python "${python}")
  ((status == 1)) || exec "${run[@]}"
  "${run[@]}" || status=$?
  exit "${status}"
}

main "$@"
