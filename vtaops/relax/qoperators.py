def to_pairs(m): return m
