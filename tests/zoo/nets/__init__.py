"""Seventeen nets in torch (`*_torch.py`), with what they are trained with; ports (`*_paddle.py`) that do not read as their references do."""
