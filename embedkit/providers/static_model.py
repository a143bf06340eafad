"""The embedded default model: a table of token vectors, read from the installed ``wordllama`` package.

A text's vector is the mean of its tokens' vectors, scaled to length one; that is how the model was trained, so no
weights of ours are laid over it. ``wordllama`` itself is not imported: its loader looks in the wrong folder, then asks
a hub over the network, and needs packages that we do not.

Tokenizing takes most of the time. What is left to us is to gather and add rows, one text at a time: a text's rows
(some 250 KB) stay in the processor's cache, and numpy's own loops release the interpreter lock and start no threads.
A product of token counts with the table was no faster alone (0.85 of the tokenizer's own pace both), and half as fast
with two workers at once, since BLAS brings threads of its own to a machine that is already busy.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from embedkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Encoding, Tokenizer

    from embedkit.providers.provider import Vectors

_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_TENSOR = "embedding.weight"
_MEND = "pip install 'trio-embedkit[local]'"

# Rows gathered at once (4 MB at 256 dimensions): a text of any length is embedded in bounded memory.
_BLOCK = 4096


class StaticModel:
    """Texts to vectors, on this machine, from a table. Immutable once loaded: any number of threads may call it."""

    model_id = "wordllama-l2-supercat-256"

    def __init__(self, tokenizer: Tokenizer, table: Vectors) -> None:
        self._tokenizer = tokenizer
        self._table = table

    @classmethod
    def load(cls) -> StaticModel:
        """Read the model from the installed package: some 0.2 s, and 32 MB that stay.

        Raises:
            UsageError: ``wordllama``, ``tokenizers`` or ``safetensors`` is not installed, or is not what we know.
        """
        try:
            import numpy as np
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise _missing(error.name or "a package") from error
        folder = _package_folder()
        try:
            weights = load_file(folder / _WEIGHTS)[_TENSOR]
            tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        except Exception as error:  # both libraries raise their own kinds, tokenizers a bare Exception
            raise UsageError(f"cannot read the embedded model in {folder}: {error}; mend: {_MEND}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, weights.astype(np.float32))

    @property
    def dimension(self) -> int:
        """Numbers in a vector: 256."""
        return int(self._table.shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed ``texts``; the work is done in the calling thread, and its length is that of the texts.

        A text's vector depends on that text alone, to the last bit, whatever stands beside it.

        Returns:
            ``(len(texts), dimension) float32``, row i for text i, of length one. A blank text (nothing but white
            space) has no direction: its row is zeros, which is alike to nothing.
        """
        import numpy as np

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, encoding in enumerate(self.tokenize(texts)):
            ids = encoding.ids
            for start in range(0, len(ids), _BLOCK):
                vectors[row] += np.add.reduce(self._table.take(ids[start : start + _BLOCK], axis=0), axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def tokenize(self, texts: Sequence[str]) -> list[Encoding]:
        """What the tokenizer makes of ``texts``, without the token that opens a text; a blank text has no tokens."""
        spoken = [_encodable(text) if text and not text.isspace() else "" for text in texts]
        return self._tokenizer.encode_batch_fast(spoken, add_special_tokens=False)


def _encodable(text: str) -> str:
    """``text`` without lone surrogates (an argument that was no UTF-8 carries them): the tokenizer refuses them."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def _package_folder() -> Path:
    """Where ``wordllama`` is installed, found without importing it."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise _missing("wordllama")
    return Path(spec.submodule_search_locations[0])


def _missing(package: str) -> UsageError:
    return UsageError(f"the embedded model needs {package}, which is not installed; mend: {_MEND}")
