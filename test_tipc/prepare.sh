#!/usr/bin/env bash
# The path that TIPC users type: the same as prepare.sh in the project's root.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../prepare.sh" "$@"
