"""A part of a notebook's output that is replaced in place. IPython is used only if this process is a notebook's
kernel."""

from __future__ import annotations

import sys
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH = 110


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def html(shown: RenderableType) -> str:
    """An HTML element that shows `shown`, an object that rich can print."""
    from rich.console import Console  # imported here, as in `progress`

    console = Console(record=True, file=StringIO(), width=_WIDTH, force_jupyter=False)
    console.print(shown)
    page = console.export_html(inline_styles=True, code_format="{code}")
    return f'<pre style="white-space: pre; line-height: normal">{page}</pre>'


class Place:
    """A place in the output of the running cell. Each `show` replaces the contents of the one before."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, shown: RenderableType, text: str) -> None:
        """Show `shown` at this place. `text`: the same as plain text, for a front end without HTML."""
        from IPython.display import display

        bundle = {"text/html": html(shown), "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
