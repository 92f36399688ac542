"""What the operations of the store machine are drawn from."""

from hypothesis import strategies as st

from lantern_journal.domain.leases import Limits

LIMITS = Limits(lease_us=60_000_000, grant_us=5_000_000, silence_us=10_000_000)
WORKERS = ("w1", "w2", "W3")
TENANTS = ("default", "other")
# Names that a database sorts in different ways under different collations.
AGENTS = ("order", "Order", "or-der", "order_b")
# One of them is published as a graph at times, and at other times offered as code: whichever is first.
GRAPH = 3
GRAPHS = (b'{"nodes":[]}', b'{"nodes":[1]}', b'{"nodes":[2]}')
DIGESTS = tuple(letter * 64 for letter in "abc")
STEPS_OF_TIME_US = (
    0,
    1,
    1_000,
    1_000,
    1_000,
    1_000,
    1_000,
    1_000,
    999_999,
    4_999_999,
    5_000_000,
    9_999_999,
    10_000_000,
    60_000_000,
    3_600_000_000,
)

UNKNOWN = 15

few = st.integers(0, 3)
runs = st.sampled_from((0, 0, 1, 1, 2, 2, 3, 4, 5, UNKNOWN))
many = st.integers(0, 7)
off_by = st.sampled_from((0, 0, 0, 0, 0, -1, 1))
content = st.sampled_from(
    ("step", "waiting", "signal", "cancel", "park", "park", "park", "succeed", "continue", "fail", "cancelled", "both")
)
ENTRIES = ("signal", "signal", "signal", "update", "cancel", "pause", "resume", "resume")
SIGNALS = ("paid", "shipped", "lost")
WAITS = ("timer", "signal", "operator", "code_fix", "capacity", "paused", "child")
