"""Seventeen nets in torch (`*_torch.py`) and as they were ported (`*_paddle.py`), with what they are trained with."""
