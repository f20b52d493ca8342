"""Language models: from their files to text, token by token."""

from vtaops.language.files import DecoderWeights, Tokenizer
from vtaops.language.model import LanguageModel

__all__ = ["DecoderWeights", "LanguageModel", "Tokenizer"]
