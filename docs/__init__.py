"""What writes and checks parts of the documents: ``python -m docs NAME``."""
