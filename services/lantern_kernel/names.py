"""Which ids users may choose, and why the engine's own can never collide with them (SPEC E1).

User-made ids match `[A-Za-z0-9_.:/@-]{1,200}`. `[`, `]` and `#` occur only in ids that the engine makes out of them
(`notify[3]`), and `|`, which joins the parts of an idempotency key, in none: the join is unambiguous.
"""

import re

from lantern_kernel.bounds import ID_LENGTH_MAX
from lantern_kernel.errors import InvalidField

ANY_AGENT = "*"
"""In place of a name: a worker that offers it drives every published agent of its program kind."""

USER_ID = re.compile(rf"[A-Za-z0-9_.:/@-]{{1,{ID_LENGTH_MAX}}}")
ENGINE_ID = re.compile(rf"[A-Za-z0-9_.:/@\[\]#-]{{1,{ID_LENGTH_MAX + 56}}}")
RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
EVENT_KIND = re.compile(r"[a-z][a-z0-9_]{0,62}")


def check_user_id(field: str, value: str) -> str:
    """Returns `value`; raises InvalidField naming `field` where it is no user-made id."""
    if not USER_ID.fullmatch(value):
        raise InvalidField(field, f"{_shown(value)} must be 1 to {ID_LENGTH_MAX} of A-Z a-z 0-9 _ . : / @ -")
    return value


def check_engine_id(field: str, value: str) -> str:
    """Returns `value`; raises InvalidField where it is neither a user-made id nor one the engine makes of it."""
    if not ENGINE_ID.fullmatch(value):
        raise InvalidField(field, f"{_shown(value)} must be an id of A-Z a-z 0-9 _ . : / @ - and [ ] #")
    return value


def check_run_id(field: str, value: str) -> str:
    """Returns `value`; raises InvalidField where it is no UUIDv7 in its canonical spelling (RFC 9562)."""
    if not RUN_ID.fullmatch(value):
        raise InvalidField(field, f"{_shown(value)} is no run id (a UUIDv7 in lower case)")
    return value


def _shown(value: str) -> str:
    return repr(value) if len(value) <= 64 else repr(value[:61] + "...")
