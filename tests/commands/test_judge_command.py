"""Judging dumps again."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.cli import main
from tipchain.numbers.dumps import save_record


@pytest.mark.parametrize("case", ["gone.yaml", None])
def test_default_tolerances_are_remarked_where_the_case_is_not_here(tmp_path, capsys, case):
    for side in ("torch", "paddle"):
        meta = {"side": side, "stage": "forward", **({"case": str(tmp_path / case)} if case else {})}
        save_record(tmp_path / f"forward_{side}", {"logits": np.ones(3)}, meta=meta)
    assert main(["judge", str(tmp_path)]) == 0
    assert "the case that was run is not here: default tolerances" in " ".join(capsys.readouterr().out.split())


def test_the_lines_of_a_reason_stay_lines(tmp_path, capsys):
    save_record(tmp_path / "forward_torch", {"logits": np.ones(3)})
    (tmp_path / "forward_paddle.npy").write_bytes(b"no dump")
    assert main(["judge", str(tmp_path), "-v"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "found: a file that starts with b'no dum', not with b'\\x93NUMPY'" in lines
