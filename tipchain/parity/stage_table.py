"""Moved to ``tipchain.stage_table``: the chain reads it too."""

from tipchain.stage_table import INFO, SOLO, STAGES, StageInfo

__all__ = ["INFO", "SOLO", "STAGES", "StageInfo"]
