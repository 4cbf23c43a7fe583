"""What a hostile pickle holds."""

from typing import Any


class Call:
    """Unpickling it would call a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call
