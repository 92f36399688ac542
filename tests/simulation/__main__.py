"""Repeats one seed with its whole trace: `python -m simulation SEED`."""

import sys

from simulation.simulate import simulate


def main() -> None:
    """Prints the trace, then what is wrong."""
    seed = int(sys.argv[1])
    outcome = simulate(seed, print)
    print(f"seed {seed}: {outcome.facts}; trace {outcome.digest[:16]}")
    for fault in outcome.faults:
        print(f"FAULT {fault}")
    sys.exit(bool(outcome.faults))


main()
