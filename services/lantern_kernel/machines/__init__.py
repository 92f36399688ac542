"""What may follow what for one step, marker or timer. Each module opens with its transition table.

An event that the table does not know, or whose numbers do not fit, raises HISTORY_UNREADABLE and changes nothing.
"""
