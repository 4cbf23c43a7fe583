#!/usr/bin/env bash
# The driver under the path that TIPC users type; see ../test_train_inference_python.sh.
set -euo pipefail

exec bash "$(dirname -- "${BASH_SOURCE[0]}")/../test_train_inference_python.sh" "$@"
