#!/usr/bin/env bash
# The environment in .venv: found, checked, made. A part of prepare.sh, which calls it:
#   environment.sh make DEV FORCE   makes it or brings it up to date; DEV, FORCE: "1" or ""
#   environment.sh is-complete      tells whether there is one that a set-up has finished
#   environment.sh check PYTHON     checks an environment of the user's own
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="$ROOT/.venv"
STATE="$VENV/.tipchain-set-up" # "started", then "<fingerprint> plain" or "<fingerprint> dev"
FRAMEWORKS=(torch paddlepaddle reprod-log) # the extra `cpu`

# Prints a progress line.
say() { printf 'prepare: %s\n' "$*" >&2; }

# Prints a fact and, as further arguments, what to do about it; ends with exit code 2.
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 2
}

# Prints the first Python 3.10 to 3.13 on PATH that can make environments; ends with 2 if there is none.
find_python() {
  local name seen="" check='import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
  for name in python3 python3.13 python3.12 python3.11 python3.10; do
    if "$name" -c "$check" 2>/dev/null; then
      command -v "$name"
      return
    fi
    ! command -v "$name" >/dev/null || seen+="${seen:+, }$name ($("$name" --version 2>&1 | tail -n 1))"
  done
  die "Python 3.10 to 3.13 with venv is needed; found: ${seen:-no python3}" \
    "install one (Debian, Ubuntu: packages python3 and python3-venv)," \
    "or name a Python whose environment has all that is needed: --python PATH"
}

# Checks that the user's own Python $1 can import what tipchain needs; nothing is installed into it.
check_own_python() {
  "$1" -c 'import tipchain, filelock, numpy, safetensors, yaml' || die \
    "$1 cannot import what tipchain needs; nothing was installed into it" \
    "pip install filelock numpy safetensors pyyaml, or leave out --python (and TIPCHAIN_PYTHON)"
}

# Prints the words of the state file, nothing where there is none.
environment_state() { [[ ! -r $STATE ]] || printf '%s' "$(<"$STATE")"; }

# Prints one word for all that the environment depends on: the lock, the dependencies, the place.
fingerprint() {
  { cat "$ROOT/constraints.txt" "$ROOT/pyproject.toml" && printf '%s' "$ROOT"; } | sha256sum | cut -c 1-64
}

# Tells whether .venv is complete and up to date; $1: not empty if it must have the development tools.
is_ready() {
  local state
  state="$(environment_state)"
  [[ -x $VENV/bin/python && ($state == "$(fingerprint) dev" || (-z $1 && $state == "$(fingerprint) plain")) ]]
}

# Makes sure of a complete environment. $1: not empty for the development tools; $2: not empty to make it anew.
ensure_environment() {
  if [[ -z $2 ]] && is_ready "$1"; then return; fi
  { exec 9>"$ROOT/.setup.lock"; } 2>/dev/null || die "$ROOT cannot be written, so no environment can be made there"
  if ! flock -n 9; then
    say "waiting for another set-up of this folder"
    flock 9
  fi
  if [[ -n $2 ]] || ! is_ready "$1"; then make_environment "$1" "$2"; fi
  exec 9>&-
}

# Makes .venv, or brings it up to date; until all is done the state file says "started". Arguments as above.
make_environment() {
  local state group=()
  state="$(environment_state)"
  if [[ ! -x $VENV/bin/python || $state == started || (-n $2 && -n $state) ]]; then
    make_empty_environment "$state"
  fi
  [[ -z $1 && $state != *" dev" ]] || group=(--group dev)
  write_state started
  install_with_uv "${group[@]}" || install_with_pip "${group[@]}"
  compile_packages
  write_state "$(fingerprint) $( ((${#group[@]})) && printf dev || printf plain)"
  say "environment ready"
}

# Replaces .venv by an empty environment. $1: the state, empty if .venv is not ours, in which case it stays.
make_empty_environment() {
  local base
  base="$(find_python)"
  rm -rf -- "$VENV.old"
  if [[ -n $1 ]]; then
    mv -- "$VENV" "$VENV.old"
    rm -rf -- "$VENV.old"
  elif [[ -e $VENV ]]; then
    rmdir -- "$VENV" 2>/dev/null || die "$VENV is in the way: no environment, and not ours" "move it elsewhere"
  fi
  say "setting up $VENV with $("$base" --version) (about a minute, 2 GB)"
  mkdir -- "$VENV"
  write_state started
  "$base" -m venv "$VENV" || die "$base cannot make an environment in $VENV" "is the disk full?"
}

# Replaces the state file by $1.
write_state() {
  { printf '%s' "$1" >"$STATE.new" && mv -- "$STATE.new" "$STATE"; } ||
    die "$STATE cannot be written" "is the disk full?"
}

# Installs the packages with uv, which unpacks them side by side and links them from its cache, from the places and under
# the constraints that pip is told. Fails where pip finds no uv either, or it cannot. Arguments: those for the development tools.
install_with_uv() {
  local settings packages program uv=(env) quiet=(--quiet)
  program="$(command -v uv)" || program="$(fetch_uv)" || return 1
  [[ ! -t 2 ]] || quiet=()
  cd "$ROOT"
  if settings="$(run_pip config list | "$VENV/bin/python" tools/installers.py uv)" && mapfile -t settings <<<"$settings" &&
    uv+=("${settings[@]}" "$program" pip) &&
    packages="$("${uv[@]}" compile --quiet --no-header --no-annotate --python "$VENV/bin/python" - <<<torch)" &&
    warn_about_cuda "$packages" && say "installing the packages with uv" &&
    "${uv[@]}" install "${quiet[@]}" --python "$VENV/bin/python" pip "${FRAMEWORKS[@]}" -e '.[cases,onnx]' "$@" >&2; then
    return
  fi
  say "uv cannot, for the reason above: going on with pip"
  return 1
}

# Has pip install uv, and prints where it is. Nobody would see a question.
fetch_uv() {
  run_pip install -qq --no-input --no-compile -c constraints.txt uv >/dev/null 2>&1 && [[ -x $VENV/bin/uv ]] && printf '%s' "$VENV/bin/uv"
}

# Installs the packages with pip. The frameworks are half of all that is unpacked, so that two of pip share it: nothing of
# the rest needs a framework, and what those need comes last. Arguments: those for the development tools.
install_with_pip() {
  local report
  pip_install --upgrade pip
  say "looking at what pip would fetch for torch"
  # What pip asks, a password, goes to the terminal; its report alone is taken.
  report="$(run_pip install -qq --dry-run --no-deps --use-feature=fast-deps --report /dev/fd/3 -c constraints.txt torch 3>&1 >&2)" ||
    die "pip finds no torch of the locked version" "it needs a package index that has it, or PIP_FIND_LINKS; then repeat the command"
  warn_about_cuda "$report"
  say "installing the packages"
  set -m # a process group of its own, which can be ended whole
  pip_install --progress-bar off --no-deps "${FRAMEWORKS[@]}" &
  set +m
  # shellcheck disable=SC2064  # the process that it is now
  trap "kill -- -$! 2>/dev/null || :" EXIT
  pip_install --no-warn-conflicts --build-constraint constraints.txt -e '.[cases,onnx]' "$@"
  wait $! || exit 2
  trap - EXIT
  pip_install "${FRAMEWORKS[@]}"
}

# Compiles all packages where Python is told to keep no bytecode, so that not every process compiles them anew, while the
# set-up goes on. Elsewhere Python compiles what it imports, which is a fifth of them, and keeps it.
compile_packages() {
  [[ -z ${PYTHONDONTWRITEBYTECODE:-} ]] ||
    nice "$VENV/bin/python" -m compileall -qq -j 0 "$VENV/lib" </dev/null >/dev/null 2>&1 9>&- &
}

# Runs pip of .venv in the project's folder.
run_pip() { (cd "$ROOT" && "$VENV/bin/python" -m pip --disable-pip-version-check "$@"); }

# Runs pip install in .venv under the constraints; on a terminal one sees it work, elsewhere only its errors.
pip_install() {
  local quiet=(-qq)
  [[ ! -t 2 ]] || quiet=()
  run_pip install --no-compile "${quiet[@]}" -c constraints.txt "$@" >&2 ||
    die "the set-up failed in: pip install $*" "it needs a package index and about 2 GB of disk; then repeat the command"
}

# Says so before gigabytes of CUDA packages are fetched; on a terminal it leaves time to press Ctrl-C.
# $1: what an installer says it would install for torch.
warn_about_cuda() {
  local notice
  notice="$("$VENV/bin/python" "$ROOT/tools/installers.py" notice <<<"$1")" || return
  [[ -n $notice ]] || return 0
  printf '%s\n' "$notice" >&2
  if [[ -t 0 && -t 2 ]]; then
    say "going on in 10 seconds"
    sleep 10
  fi
}

trap 'exit 130' INT # no message of a half-done step's own; prepare.sh says it
case "${1:-}" in
  make) ensure_environment "$2" "$3" ;;
  is-complete) [[ -x $VENV/bin/python && "$(environment_state)" != started ]] ;;
  check) check_own_python "$2" ;;
  *) die "environment.sh is a part of prepare.sh; call that" ;;
esac
