"""``python -m tipchain``."""

from tipchain.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
