"""A history that holds nothing yet."""

import pytest
from history_samples import history_in


@pytest.fixture
def history(tmp_path):
    return history_in(tmp_path)
