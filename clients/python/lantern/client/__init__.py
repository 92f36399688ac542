"""The client: start runs, follow them, speak to them."""

from lantern.client.approval import Approval, ApprovalPage, Decision
from lantern.client.client import Client
from lantern.client.run import Run, RunFailed, RunPage, Taken

__all__ = ["Approval", "ApprovalPage", "Client", "Decision", "Run", "RunFailed", "RunPage", "Taken"]
