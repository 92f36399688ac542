"""The tools of `order.graph.json`, which is the workflow `order` as a graph: same steps, same effects, same result."""

import lantern
from order.workflow import choose_option, send_receipt


@lantern.tool(name="choose-option")
def choose() -> str:
    """A choice that nobody could repeat: recorded as its step's output."""
    return choose_option()


@lantern.tool(name="send-receipt")
def send(*, smtp: str, order_id: str, charge_id: str) -> dict[str, str]:
    """Sends the receipt under the key of its step."""
    return send_receipt(smtp, order_id, charge_id)
