"""Where the command prints, and how wide."""

import io
import os
import sys

from rich.console import Console

from lantern.cli.draw import WIDTH_MIN
from lantern.cli.exit_codes import READER_GONE


class _Console(Console):
    """Ends the command as shells expect it where the reader of its output went away."""

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(READER_GONE) from None


def make_console(width_min: int = WIDTH_MIN) -> Console:
    """Standard output: colour only on a terminal and without NO_COLOR; never narrower than `width_min` columns."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character shows another one: no command fails for that.
        sys.stdout.reconfigure(errors="replace")
    # NO_COLOR alone would leave bold and dim.
    colours = None if os.environ.get("NO_COLOR") else "auto"
    console = _Console(soft_wrap=False, emoji=False, markup=False, color_system=colours)
    if console.width < width_min:
        console.width = width_min
    return console


def print_line(text: str) -> None:
    """A line as it is, for programs: not wrapped, not coloured."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
