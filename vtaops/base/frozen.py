"""frozen: dataclasses that are frozen for the type checker alone.

Frozen at run time too, an object takes ten times as long to make: a LOAD 2.2 instead of 0.2 us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

__all__ = ["frozen"]

if TYPE_CHECKING:
    from dataclasses import dataclass as frozen
else:

    def frozen(*, frozen: bool, **options: Any) -> Callable[[type], type]:
        """Decorate a class as `dataclass` does; its objects are hashable if they have equality."""
        return dataclass(unsafe_hash=options.get("eq", True), **options)
