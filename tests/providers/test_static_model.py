from __future__ import annotations

import importlib.util
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedkit.errors import UsageError
from embedkit.providers import static_model
from embedkit.providers.static_model import StaticModel

np = pytest.importorskip("numpy")
for package in ("tokenizers", "safetensors"):
    pytest.importorskip(package, reason="the embedded model is the extra 'local'")
if importlib.util.find_spec("wordllama") is None:
    pytest.skip("the embedded model is the extra 'local'", allow_module_level=True)


TEXTS = [
    "def parse_date(text: str) -> date: ...",
    "Parse a date from a string",
    "café Größe 日本語 🙂",
    "x = 1\n" * 300,
    "",
    " \t\n",
    "<s>",
]


@pytest.fixture(scope="module")
def model() -> StaticModel:
    return StaticModel.load()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(), max_size=6))
@example(TEXTS)
@example(["\ud800 lone \udfff"])
def test_every_text_has_a_finite_row_of_length_one_or_is_blank(model: StaticModel, texts: list[str]) -> None:
    vectors = model.embed(texts)
    assert vectors.shape == (len(texts), model.dimension) == (len(texts), 256)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths == pytest.approx([1.0 if text.strip() else 0.0 for text in texts], abs=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(), min_size=1, max_size=6), st.randoms(use_true_random=False))
@example(TEXTS, random.Random(0))
def test_a_row_depends_on_its_text_alone(model: StaticModel, texts: list[str], rng: random.Random) -> None:
    vectors = model.embed(texts)
    order = list(range(len(texts)))
    rng.shuffle(order)
    assert np.array_equal(model.embed([texts[i] for i in order]), vectors[order])
    assert all(np.array_equal(model.embed([text])[0], vectors[i]) for i, text in enumerate(texts))


def test_threads_do_not_disturb_one_another(model: StaticModel) -> None:
    batches = [[f"{text} {number}" for text in TEXTS] for number in range(40)]
    alone = [model.embed(batch) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(model.embed, batches))
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_a_vector_is_the_direction_of_the_mean_of_the_tokens_vectors(model: StaticModel) -> None:
    from safetensors.numpy import load_file

    (encoding,) = model.tokenize([TEXTS[0]])
    assert model._tokenizer.id_to_token(encoding.ids[0]) == "▁def", "no token opens a text"
    mean = load_file(static_model._package_folder() / static_model._WEIGHTS)["embedding.weight"].astype(np.float64)
    mean = mean[encoding.ids].mean(axis=0)
    assert model.embed([TEXTS[0]])[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_a_text_longer_than_a_block_is_the_sum_of_all_its_tokens(
    model: StaticModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model.embed(TEXTS)
    monkeypatch.setattr(static_model, "_BLOCK", 7)
    assert model.embed(TEXTS) == pytest.approx(whole, abs=1e-5)


def test_what_is_alike_is_near(model: StaticModel) -> None:
    query, near, far = model.embed(
        ["parse a date from a string", "def date_from_string(text): return parse(text)", "class Socket: closed = True"]
    )
    assert query @ near > query @ far + 0.1


@pytest.mark.parametrize("package", ["wordllama", "tokenizers", "safetensors"])
def test_a_missing_package_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Without(package), *sys.meta_path])
    if package == "wordllama":
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, package).exists()])
        monkeypatch.setattr(sys, "meta_path", sys.meta_path[1:])
    with pytest.raises(UsageError, match=rf"needs {package}.*pip install 'trio-embedkit\[local\]'") as caught:
        StaticModel.load()
    assert "\n" not in str(caught.value)


def test_a_package_without_its_files_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wordllama").mkdir()
    (tmp_path / "wordllama" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"wordllama.*pip install 'trio-embedkit\[local\]'"):
        StaticModel.load()


def test_the_package_itself_is_not_imported(model: StaticModel) -> None:
    assert model.embed(["loaded"]).any()
    assert "wordllama" not in sys.modules


class _Without:
    """A finder in whose eyes one package is not there."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self.package)
