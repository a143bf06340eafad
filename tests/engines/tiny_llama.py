"""A tiny chat model of random weights in a GGUF file: enough for a real llama.cpp server to answer with.

It reads bytes and letters, and says letters that mean nothing.
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
WINDOW = 2048
_HEADS = 4
_LAYERS = 2
_INNER = 64
_TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def write_tiny_llama(path: Path, *, seed: int = 7) -> Path:
    """Write the model to ``path``."""
    gguf: Any = importlib.import_module("gguf")
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_chat_template(_TEMPLATE)
    _add_tokenizer(writer)
    for name, tensor in _tensors(seed):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _vocabulary() -> list[tuple[str, int]]:
    specials = [("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL)]
    letters = [("\u2581", _NORMAL), *((letter, _NORMAL) for letter in string.ascii_letters)]
    return [*specials, *((f"<0x{byte:02X}>", _BYTE) for byte in range(256)), *letters]


def _add_tokenizer(writer: Any) -> None:
    vocabulary = _vocabulary()
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(seed: int) -> Iterator[tuple[str, Tensor]]:
    import numpy as np

    random = np.random.default_rng(seed)

    def weights(*shape: int) -> Tensor:
        drawn: Tensor = random.standard_normal(shape, dtype=np.float32) / np.float32(WIDTH**0.5)
        return drawn

    yield "token_embd.weight", weights(len(_vocabulary()), WIDTH)
    yield "output_norm.weight", np.ones(WIDTH, np.float32)
    yield "output.weight", weights(len(_vocabulary()), WIDTH)
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{block}.{part}.weight", weights(WIDTH, WIDTH)
        yield f"{block}.attn_norm.weight", np.ones(WIDTH, np.float32)
        yield f"{block}.ffn_norm.weight", np.ones(WIDTH, np.float32)
        yield f"{block}.ffn_gate.weight", weights(_INNER, WIDTH)
        yield f"{block}.ffn_up.weight", weights(_INNER, WIDTH)
        yield f"{block}.ffn_down.weight", weights(WIDTH, _INNER)
