"""Parse scheduled TIR to a tree of loops with compiled index expressions."""
