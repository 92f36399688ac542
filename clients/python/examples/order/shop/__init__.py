"""The world outside of the order example: a stock, a card service, a parcel service and a mailbox, in one process.

It stands for services that other people run: it has its own ledger, knows nothing of Lantern, and recognises a used
idempotency key as payment services do. Faults can be ordered, so that a reply gets lost after the money was taken.
"""
