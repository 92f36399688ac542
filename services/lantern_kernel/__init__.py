"""The pure core: what Lantern decides, without any I/O.

Nothing here reads a clock, draws a random number, opens a socket or a file, or logs. Time, ids and randomness come in
as arguments; answers go out as values. That is what lets one core serve every program kind, be tested in microseconds
and be simulated with seeds.
"""
