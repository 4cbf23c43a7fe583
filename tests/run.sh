#!/usr/bin/env bash
# Sets up what is missing, then lint, types, shellcheck and pytest; arguments are handed to pytest.
# All stages run; the exit code is 0 only if all passed. pytest comes last, so that its summary is the last line.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
PARAMS="test_tipc/configs/alexnet/train_infer_python.txt"
failed=()

# Runs one stage and remembers its failure. $1: its name; the rest: the command.
stage() {
  local name="$1"
  shift
  printf '== %s\n' "$name"
  "$@" || failed+=("$name")
}

# Runs shellcheck on every bash file of the project.
# shellcheck disable=SC2329  # called through stage
check_shell() {
  local files=()
  mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard -- '*.sh' .ci/run)
  ((${#files[@]})) && shellcheck -x "${files[@]}"
}

# Runs all stages but the tests, and fails if one of them does.
check_sources() {
  stage "ruff check" ruff check
  stage "ruff format" ruff format --check
  stage "mypy" mypy
  stage "shellcheck" check_shell
  ((${#failed[@]} == 0)) || printf '== failed before the tests: %s\n' "${failed[*]}"
  return "$((${#failed[@]} > 0))"
}

main() {
  local status=0 checked=0 python checks
  cd "$ROOT"
  unset PYTHONDONTWRITEBYTECODE # each of the tests' processes would compile anew what it imports
  bash prepare.sh --env-only --dev
  python="${TIPCHAIN_PYTHON:-$ROOT/.venv/bin/python}"
  PATH="$(dirname "$python"):$PATH"
  # The data and the weights keep one core busy, the linters another; what these say is shown when both have ended.
  exec {checks}< <(check_sources 2>&1)
  bash prepare.sh "$PARAMS" lite_train_lite_infer --dev
  cat <&"$checks"
  wait $! || checked=1
  printf '== pytest\n'
  # Two files at a time (tests/conftest.py says which belong together), one core for each: frameworks whose threads wait
  # for one another on the cores of other processes compute up to five times as long.
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
  "$python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@" || status=$?
  exit "$((status > checked ? status : checked))"
}

main "$@"
