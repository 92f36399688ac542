"""What a workflow's code can call in another file: functions that are fine, and functions that are not."""

import time
from datetime import datetime


def pure(value: int) -> int:
    return value + 1


def stamp() -> float:
    return time.time()


def through_a_class() -> str:
    return datetime.now().isoformat()


class Clock:
    @staticmethod
    def read() -> float:
        return stamp()
