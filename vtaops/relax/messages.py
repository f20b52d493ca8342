"""Convert TVM's errors, which share no base class but Exception, to one line."""

from __future__ import annotations

import re


def last_line(error: BaseException) -> str:
    """Return a message, or its last line if it is long, without TVM's listings of operators."""
    text = re.sub(r'ir\.Op\(span.*?name="([^"]+)".*?support_level=\d+\)', r"\1", str(error))
    lines = text.strip().splitlines() or [type(error).__name__]
    whole = " ".join(text.split())
    return whole if 0 < len(whole) <= 200 else lines[-1]
