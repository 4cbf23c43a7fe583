"""Align evaluation data of a case: --case, --device, --mode, --out; --help says more."""

from _enter import main

if __name__ == "__main__":
    raise SystemExit(main("02"))
