"""The client: start runs, follow them, speak to them."""

from lantern.client.client import Client
from lantern.client.run import Run, RunFailed, RunPage

__all__ = ["Client", "Run", "RunFailed", "RunPage"]
