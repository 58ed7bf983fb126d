"""The shelf: one family is one folder, one mechanism is one file."""
