"""Language models: from their files to text, token by token."""

from vtaops.language.files import Tokenizer, DecoderWeights
from vtaops.language.model import LanguageModel

__all__ = ["LanguageModel", "Tokenizer", "DecoderWeights"]
