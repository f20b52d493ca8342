"""Pages of HTML from the templates beside this file; names come from model files and are quoted."""

from __future__ import annotations

import base64
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.quoting import terminal_text

if TYPE_CHECKING:
    from jinja2 import Environment

    from vtaops.quantization.evaluation import JudgedSample


def render(template: str, **values: Any) -> str:
    """Return a page made of a template."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        # What changes the direction of a text, or its colour, is not printed.
        finalize=lambda value: value if hasattr(value, "__html__") else terminal_text(str(value)),
    )
    made.filters["picture"] = _picture
    return made


def _picture(result: JudgedSample) -> str:
    """Return a sample's first input as the address of a picture, if it is one."""
    array = next(iter(result.case.read().values()))
    if array.ndim != 4 or len(array) != 1 or not {array.shape[1], array.shape[3]} & {1, 3}:
        return ""
    from PIL import Image

    image = array[0] if array.shape[3] in (1, 3) else array[0].transpose(1, 2, 0)
    low, high = float(image.min()), float(image.max())
    pixels = np.rint((image - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    content = BytesIO()
    Image.fromarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3))).save(content, "PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
