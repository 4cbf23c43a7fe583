"""Read what a case says about its stages, a mapping for each.

Each function raises `CaseError` with file, line and key for a value that cannot be.
"""

from __future__ import annotations

from tipchain.modes import DATA_SETS, DIGITS
from tipchain.parity.case_types import DataSettings
from tipchain.yaml_lines import Reader


def read_data(reader: Reader) -> DataSettings:
    """Read the mapping ``data``."""
    data = reader.mapping("data", default={})
    assert data is not None
    settings = DataSettings(
        batch_size=data.integer("batch_size", 4, least=1),
        max_batches=data.integer("max_batches", 100, least=1),
        transform_samples=data.integer("transform_samples", 2, least=1),
        set=data.choice("set", tuple(DATA_SETS), default=DIGITS),
        args=data.args("args"),
    )
    data.done()
    return settings
