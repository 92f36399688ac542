"""Expected faults on the command line: one line on standard error and an exit code, never a traceback."""

import functools
import json
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from lantern.cli.exit_codes import exit_code
from lantern_kernel.errors import LanternError

INTERRUPTED = 130
"""As shells report Ctrl-C: 128 + SIGINT."""

P = ParamSpec("P")
T = TypeVar("T")


def error_line(error: LanternError) -> str:
    """`error: REASON: message (field ...)`; the field is left out where the message begins with it."""
    message = " ".join(error.message.split())
    field = error.details.get("field", "")
    where = f" (field {field})" if field and not message.startswith(f"{field}:") else ""
    return f"error: {error.reason}: {message}{where}"


def error_json(error: LanternError) -> str:
    """The same for programs, on one line."""
    return json.dumps({"error": {"reason": error.reason, "message": error.message, "details": dict(error.details)}})


def reported(command: Callable[P, T]) -> Callable[P, T]:
    """Wraps a command so that what it refuses or cannot do is reported; `--json` makes that JSON."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except LanternError as error:
            line = error_json(error) if kwargs.get("as_json") else error_line(error)
            sys.stderr.write(line + "\n")
            raise typer.Exit(exit_code(error.reason)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return wrapped
