#!/usr/bin/env bash
# Run the chain of a TIPC parameter file with tipchain: train, eval, export and inference.
#
#   bash test_train_inference_python.sh PARAMS MODE [GPU_ID] [options]
#
# In tipchain's own project what is missing (environment, data) is set up first by prepare.sh. Copied alone into a
# suite's test_tipc/, as tipchain.sh beside the suite's own driver, it runs the suite's files with the tipchain that is
# installed, and prepares nothing.
# Exit codes: 0 all passed, 1 something failed, 2 wrong use, 4 nothing was run, 130 interrupted.

# A script that sources its suite's driver wants that driver's functions; none of the options below may reach it.
if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
  printf 'error: %s is tipchain'"'"'s driver, which is run and not sourced\n' "${BASH_SOURCE[0]}" >&2
  printf '  put the suite'"'"'s own driver back in its place, and this one beside it, as test_tipc/tipchain.sh\n' >&2
  [[ $- == *i* ]] || exit 2
  return 2
fi
set -euo pipefail
unset CDPATH

MODES="lite_train_lite_infer lite_train_whole_infer whole_train_whole_infer whole_infer klquant_whole_infer"

usage() {
  cat >&2 <<USAGE
usage: bash ${0##*/} PARAMS MODE [GPU_ID] [options]

  PARAMS   parameter file, as test_tipc/configs/alexnet/train_infer_python.txt
  MODE     one of: ${MODES}
  GPU_ID   CUDA_VISIBLE_DEVICES in whole_infer
  options  of tipchain run, handed on as they are: --data-path DIR, --resume, --timeout S, --python PATH, ...

TIPCHAIN_PYTHON names the interpreter. Without it, it is .venv/bin/python in tipchain's own project; elsewhere the
installed tipchain is used, and the commands' interpreter is the file's.
USAGE
  exit 2
}

# Prints an error and, as further arguments, what to do about it; ends with exit code 2.
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 2
}

# Prints the absolute path of the file $1, looked for in the caller's folder and then in $2.
find_params() { # <params> <folder>
  local place
  for place in "$1" "$2/$1"; do
    if [[ -f "${place}" ]]; then
      printf '%s\n' "$(cd -- "$(dirname -- "${place}")" && pwd -P)/$(basename -- "${place}")"
      return 0
    fi
  done
  die "no parameter file $1, neither here nor in $2"
}

# Sets the globals home (the folder that this script belongs to), own (1 in tipchain's own project, else ""), root
# (where the chain runs) and params (PARAMS, from there). Nothing else here tells our project from a suite's checkout.
choose_place() { # <params>
  local file
  home="$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")"
  [[ "${home##*/}" != test_tipc ]] || home="${home%/*}"
  file="$(find_params "$1" "${home}")"
  own="" root="${home}"
  if [[ -f "${home}/tipchain/__main__.py" && ("${file}" == "${home}"/* || "${file}" != */test_tipc/*) ]]; then
    own=1
  elif [[ -d test_tipc || "${file}" != */test_tipc/* ]]; then
    root="$(pwd -P)" # a suite's drivers are started in its checkout's root
  else
    root="${file%/test_tipc/*}"
  fi
  # Shorter messages, and the same plan wherever the driver is called from.
  params="${file#"${root}/"}"
}

# Ends the script where it stands in place of a suite's own driver that other scripts of the suite use: they run it in
# modes and with files of their own, read what its programs print, edit its text, and may never look at its exit code.
refuse_anothers_place() {
  local name=test_train_inference_python folder users=()
  folder="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
  [[ "${BASH_SOURCE[0]##*/}" == "${name}.sh" && "${folder##*/}" == test_tipc ]] || return 0
  # Nothing but a comment of this file names it in full, so that a copy of it is no user.
  mapfile -t users < <(cd -- "${folder}" && grep -lE "^[^#]*${name}\.sh" -- *.sh)
  ((${#users[@]} == 0)) || die "${folder}/${name}.sh is tipchain's driver, where ${users[*]} need the suite's own" \
    "put that back (git checkout test_tipc/${name}.sh), and this one beside it, as test_tipc/tipchain.sh;" \
    "or call tipchain run PARAMS MODE, which needs no script"
}

# Sets the global array tipchain to the command that starts the installed tipchain.
find_tipchain() {
  local name
  for name in "${TIPCHAIN_PYTHON:-tipchain}" python python3 "${home}/.venv/bin/python"; do
    tipchain=("${name}" -m tipchain)
    [[ "${name}" != tipchain ]] || tipchain=(tipchain)
    ! "${tipchain[@]}" --version >/dev/null 2>&1 || return 0
    [[ -z "${TIPCHAIN_PYTHON:-}" ]] || die "TIPCHAIN_PYTHON=${TIPCHAIN_PYTHON} cannot run tipchain" \
      "install tipchain into its environment; or leave TIPCHAIN_PYTHON out, have the program tipchain on PATH," \
      "and name the interpreter of the file's commands with --python PATH"
  done
  die "tipchain is not found: neither the program tipchain nor a python or python3 on PATH that has it" \
    "install it, and enter its environment (so that tipchain is on PATH);" \
    "or name an interpreter that has it: TIPCHAIN_PYTHON=/path/to/python bash $0 ..."
}

# Prepares and runs in our own project. $1: the mode; $2: the data folder or ""; the rest: options of tipchain run.
prepare_and_run() { # <mode> <data> [options]
  local mode="$1" prepare=() status=0 python="${TIPCHAIN_PYTHON:-${home}/.venv/bin/python}"
  [[ -z "$2" ]] || prepare+=(--data-path "$2")
  shift 2
  [[ " $* " != *" --dry-run "* ]] || prepare+=(--env-only)
  # tipchain need not be installed in an environment of the user's own.
  export PYTHONPATH="${home}${PYTHONPATH:+:${PYTHONPATH}}"
  bash prepare.sh "${params}" "${mode}" "${prepare[@]}" || status=$?
  # 1 says that the port does not take the weights: the alignment steps report that, and the chain still runs.
  ((status <= 1)) || exit "${status}"
  local run=("${python}" -m tipchain run "${params}" "${mode}" "$@")
  ((status == 1)) || exec "${run[@]}"
  "${run[@]}" || status=$?
  exit "${status}"
}

main() {
  refuse_anothers_place
  local given="${1:-}" mode="${2:-}" data="" options=()
  [[ $# -ge 2 && " $* " != *" --help "* && " $* " != *" -h "* && "${given}" != -* && "${mode}" != -* ]] || usage
  shift 2
  if (($#)) && [[ "$1" != -* || "$1" =~ ^-[0-9] ]]; then
    [[ -z "$1" ]] || options+=(--gpu-id "$1")
    shift
  fi
  [[ $# == 0 || "$1" == -* ]] || usage
  [[ " ${MODES} " == *" ${mode} "* && "${mode}" != *" "* ]] || die "unknown mode ${mode}" "expected one of: ${MODES}"
  if [[ "${TIPCHAIN_PYTHON:-}" == */* && "${TIPCHAIN_PYTHON}" != /* ]]; then
    export TIPCHAIN_PYTHON="${PWD}/${TIPCHAIN_PYTHON}"
  fi
  [[ -z "${TIPCHAIN_PYTHON:-}" ]] || options+=(--python "${TIPCHAIN_PYTHON}")
  while (($#)); do
    case "$1" in
      --data-path | --data-path=*)
        [[ "$1" == *=* ]] || set -- "--data-path=${2:-}" "${@:3}"
        [[ -d "${1#*=}" ]] || usage
        data="$(cd -- "${1#*=}" && pwd)" # the chain may run in another folder
        options+=(--data-path "${data}")
        ;;
      *) options+=("$1") ;;
    esac
    shift
  done

  choose_place "${given}"
  cd -- "${root}"
  [[ -z "${own}" ]] || prepare_and_run "${mode}" "${data}" "${options[@]}"
  find_tipchain
  exec "${tipchain[@]}" run "${params}" "${mode}" "${options[@]}"
}

main "$@"
