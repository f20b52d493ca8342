"""Limits of fixed-point scaling on VTA: by shifts alone, and with the extension ``post``."""

MAX_SHIFT = 31
"""Longest shift of an int32 sum."""

MULTIPLIER_BITS = 16
"""Width of a fixed-point multiplier: unsigned."""

MAX_SCALE_SHIFT = 47
"""Longest shift of a sum times a multiplier: a product has 32 + 16 bits."""

TWO_DIGITS = 127 * 256 + 127
"""Greatest factor of a tensor that two products multiply: one of two int8 digits."""
