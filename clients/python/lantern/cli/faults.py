"""Expected faults on the command line: one line on standard error and an exit code, never a traceback."""

import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TextIO, TypeVar

import typer

from lantern.cli.exit_codes import READER_GONE, RUN_FAILED, exit_code
from lantern_kernel import reasons
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
        as_json = bool(kwargs.get("as_json"))
        try:
            try:
                return command(*args, **kwargs)
            finally:
                # Here, where it can still be reported, not while the interpreter ends.
                sys.stdout.flush()
        except LanternError as error:
            _say(error, as_json)
            raise typer.Exit(exit_code(error.reason)) from None
        except OSError as error:
            raise typer.Exit(report_os_error(error, as_json)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def report_os_error(error: OSError, as_json: bool = False) -> int:
    """Reports what the system refused, a reader that went away excepted; the exit code."""
    output_lost = _abandon(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return READER_GONE
    why = error.strerror or str(error)
    if error.filename:
        _say(LanternError(reasons.INVALID_FIELD, f"cannot use {os.fsdecode(error.filename)}: {why}"), as_json)
        return exit_code(reasons.INVALID_FIELD)
    # The one file without a name that a command writes to.
    output_lost = output_lost or error.errno == errno.ENOSPC
    _say(LanternError(reasons.INTERNAL, f"cannot write the output: {why}" if output_lost else why), as_json)
    return RUN_FAILED


def _say(error: LanternError, as_json: bool) -> None:
    """On standard error; where that is gone too, the exit code alone speaks."""
    try:
        sys.stderr.write((error_json(error) if as_json else error_line(error)) + "\n")
        sys.stderr.flush()
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: TextIO) -> bool:
    """Whether a stream takes nothing any more; what it still holds then goes nowhere, so that nothing fails again."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        return True
    return False
