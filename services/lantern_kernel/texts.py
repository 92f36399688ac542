"""Text that people read on record: bounded, and fit to be said in JSON."""

TEXT_CHARACTERS_MAX = 4_000
"""Of a message: errors are events and travel in every listing."""


def printable(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """`text` as something that JSON can say, cut to a bound with a note of how much is missing.

    An error message must never be what fails a run. What is printable stays as it is.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= characters_max:
        return text
    kept = characters_max - len(_note(len(text)))
    return text[:kept] + _note(len(text) - kept)


def _note(missing: int) -> str:
    return f" ... ({missing} more characters)"
