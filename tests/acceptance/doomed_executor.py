"""An executor that kills itself (SIGKILL) at a chosen call to the journal, for the crash matrix.

`python doomed_executor.py CALL NUMBER MOMENT`: at the NUMBERth CALL (append, claim_side_effect, settle_side_effect or
put_blob), `before` it is sent, or `after` the journal's answer has arrived and nobody has acted on it. NUMBER 0 never
dies. Each call is written to standard error, so that the test can prove that its matrix left none out.
"""

import asyncio
import functools
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from lantern_executor.__main__ import main
from lantern_executor.adapters.journal import GrpcJournal

PAUSE_S = 0.2
"""Before it dies, so that whatever is wrongly done before the journal has answered gets done."""

CALLS = ("append", "claim_side_effect", "settle_side_effect", "put_blob")


def doom(call: str, deadly_number: int, moment: str) -> None:
    """Wraps one method of the journal adapter, so that its NUMBERth call is the process's last deed."""
    original: Callable[..., Awaitable[Any]] = getattr(GrpcJournal, call)
    count = 0

    @functools.wraps(original)
    async def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        number = count
        print(json.dumps({"action": "doomed_call", "call": call, "number": number}), file=sys.stderr, flush=True)
        if (number, moment) == (deadly_number, "before"):
            await asyncio.sleep(PAUSE_S)
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await original(*args, **kwargs)
        if (number, moment) == (deadly_number, "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(GrpcJournal, call, deadly)


if __name__ == "__main__":
    chosen, chosen_number, chosen_moment = sys.argv[1:4]
    for name in CALLS:
        doom(name, int(chosen_number) if name == chosen else 0, chosen_moment)
    main()
