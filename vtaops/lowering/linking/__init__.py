"""Link fragments to a Program: buffers, micro-ops, tokens, encoding."""
