"""From scheduled TIR to a tree of loops whose index expressions are compiled Python."""
