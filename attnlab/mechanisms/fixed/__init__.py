"""Fixed patterns: which query attends to which key does not depend on the tokens."""
