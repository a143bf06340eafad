"""A tiny BERT with random weights in a GGUF file: enough for a real llama.cpp server to embed with.

It reads characters: each is a token. Its vectors mean nothing, but equal texts get equal ones, and texts that share
most of their characters get similar ones.
"""

from __future__ import annotations

import importlib
import string
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tensor = NDArray[np.float32]

WIDTH = 32
WINDOW = 4096
_HEADS = 4
_LAYERS = 2
_INNER = 64
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CONTROL, _NORMAL = 3, 1


def write_tiny_bert(path: Path, *, seed: int = 7) -> Path:
    """Write the model to ``path``; two of different seeds give different vectors for the same text."""
    gguf: Any = importlib.import_module("gguf")
    writer = gguf.GGUFWriter(str(path), "bert")
    writer.add_name("tiny")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    _add_tokenizer(writer)
    for name, tensor in _tensors(seed):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokens() -> list[str]:
    # A mark in front stands for the start of a word; what goes on with it has none.
    characters = sorted(set(string.printable) - set(string.whitespace) - set(string.ascii_uppercase))
    return [*_SPECIAL, *(f"\u2581{character}" for character in characters), *characters]


def _add_tokenizer(writer: Any) -> None:
    tokens = _tokens()
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(tokens)
    writer.add_token_types([_CONTROL] * len(_SPECIAL) + [_NORMAL] * (len(tokens) - len(_SPECIAL)))
    writer.add_token_type_count(2)
    for add, token in (
        (writer.add_pad_token_id, "[PAD]"),
        (writer.add_unk_token_id, "[UNK]"),
        (writer.add_bos_token_id, "[CLS]"),
        (writer.add_eos_token_id, "[SEP]"),
        (writer.add_sep_token_id, "[SEP]"),
        (writer.add_mask_token_id, "[MASK]"),
    ):
        add(tokens.index(token))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def _tensors(seed: int) -> Iterator[tuple[str, Tensor]]:
    import numpy as np

    random = np.random.default_rng(seed)

    def weights(*shape: int) -> Tensor:
        drawn: Tensor = random.standard_normal(shape, dtype=np.float32) / np.float32(WIDTH**0.5)
        return drawn

    def norm(name: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", np.ones(WIDTH, np.float32)
        yield f"{name}.bias", np.zeros(WIDTH, np.float32)

    def linear(name: str, out: int, into: int) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", weights(out, into)
        yield f"{name}.bias", np.zeros(out, np.float32)

    yield "token_embd.weight", weights(len(_tokens()), WIDTH)
    yield "position_embd.weight", weights(WINDOW, WIDTH)
    yield "token_types.weight", weights(2, WIDTH)
    yield from norm("token_embd_norm")
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield from linear(f"{block}.{part}", WIDTH, WIDTH)
        yield from norm(f"{block}.attn_output_norm")
        yield from linear(f"{block}.ffn_up", _INNER, WIDTH)
        yield from linear(f"{block}.ffn_down", WIDTH, _INNER)
        yield from norm(f"{block}.layer_output_norm")
