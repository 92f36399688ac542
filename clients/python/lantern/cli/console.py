"""Where the command prints, and how wide."""

import io
import sys

from rich.console import Console

from lantern.cli.draw import WIDTH_MIN


def make_console() -> Console:
    """Standard output: colour only on a terminal and without NO_COLOR; never narrower than 60 columns."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character shows another one: no command fails for that.
        sys.stdout.reconfigure(errors="replace")
    console = Console(soft_wrap=False, emoji=False, markup=False)
    if console.width < WIDTH_MIN:
        console.width = WIDTH_MIN
    return console


def print_line(text: str) -> None:
    """A line as it is, for programs: not wrapped, not coloured."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
