from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs
import pytest

from embedkit.errors import SettingsError, UsageError
from embedkit.settings import (
    EmbeddingSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)
from embedkit.settings.kinds import cores

BOX = ProviderSettings(kind="openai-compatible", base_url="http://127.0.0.1:8080/v1/", model="m")


def test_settings_are_made_in_code_with_the_same_defaults() -> None:
    settings = Settings(providers={"box": BOX}, embedding=EmbeddingSettings(provider="box"))
    assert settings.provider() is BOX
    assert BOX.base_url == "http://127.0.0.1:8080/v1"
    assert (BOX.capacity, BOX.max_queued, BOX.lead, BOX.batch_share) == (1, 1024, 30.0, 1.0)
    assert TenantSettings(name="t").share == 1.0
    assert attrs.evolve(BOX, lead=0).lead == 0.0
    assert (settings.batch_for(), settings.batch_for("local")) == (5, 128)
    assert (settings.reserve_for(), settings.reserve_for(default=0)) == (1, 0)
    assert settings.provider("local").capacity == cores() >= 1
    assert settings.provider_names == ("box", "local")


def test_an_explicit_value_is_kept() -> None:
    box = attrs.evolve(BOX, reserve=2, capacity=8)
    settings = Settings(providers={"box": box}, embedding=EmbeddingSettings(provider="box", batch=7))
    assert (settings.batch_for(), settings.batch_for("local")) == (7, 7)
    assert settings.reserve_for(default=0) == 2
    assert Settings(providers={"local": ProviderSettings(kind="local", capacity=3)}).provider().capacity == 3


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: ProviderSettings(kind="nope"), "providers.<name>.kind"),  # type: ignore[arg-type]
        (lambda: ProviderSettings(kind=["local"]), "providers.<name>.kind"),  # type: ignore[arg-type]
        (lambda: ProviderSettings(kind="ollama"), "providers.<name>.model"),
        (lambda: attrs.evolve(BOX, capacity=True), "providers.<name>.capacity"),
        (lambda: attrs.evolve(BOX, lead=float("nan")), "providers.<name>.lead"),
        (lambda: attrs.evolve(BOX, lead=-0.001), "providers.<name>.lead"),
        *(
            (partial(attrs.evolve, BOX, batch_share=share), "providers.<name>.batch_share")
            for share in (0, -1.0, float("inf"), float("nan"), True, "1")
        ),
        (lambda: TenantSettings(name="t", share=0), "tenants[].share"),
        (lambda: RepositorySettings(name="r"), "tenants[].repositories[].path"),
        (lambda: RepositorySettings(name=" ", path=Path("x")), "tenants[].repositories[].name"),
        (lambda: SweepSettings(slice=0), "sweep.slice"),
        (lambda: StoreSettings(path=5), "store.path"),  # type: ignore[arg-type]
        (lambda: Settings(version=3), "version"),
        (lambda: Settings(embedding={"provider": "local"}), "embedding"),  # type: ignore[arg-type]
        (lambda: Settings(providers={"box": {}}), "providers.box"),  # type: ignore[dict-item]
        (lambda: Settings(providers=[BOX]), "providers"),  # type: ignore[arg-type]
        (lambda: Settings(provider_defaults={}), "providers.defaults"),  # type: ignore[arg-type]
        (lambda: Settings(tenants=5), "tenants"),  # type: ignore[arg-type]
        (lambda: Settings(tenants=["t"]), "tenants[0]"),
        (lambda: Settings(providers={"defaults": BOX}), "providers.defaults"),
        (lambda: Settings(providers={"a\nb": BOX}), 'providers."a\\nb"'),
        (lambda: Settings(embedding=EmbeddingSettings(provider="box")), "embedding.provider"),
        (lambda: Settings(tenants=[TenantSettings(name="t"), TenantSettings(name="t")]), "tenants[1].name"),
    ],
)
def test_code_is_held_to_the_same_rules(make: object, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.key == key
    assert caught.value.file is None
    assert len(str(caught.value).splitlines()) == 1


def test_whole_numbers_are_seconds_and_strings_are_paths() -> None:
    assert isinstance(SweepSettings(slice=5).slice, float)
    assert StoreSettings(path="x.sqlite3").path == Path("x.sqlite3")  # type: ignore[arg-type]


def test_settings_cannot_be_changed() -> None:
    settings = Settings(providers={"box": BOX})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        settings.version = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.providers["other"] = BOX  # type: ignore[index]


def test_a_cadence_falls_back_to_the_sweeps() -> None:
    own = RepositorySettings(name="a", path=Path("a"), cadence=9)
    assert Settings().cadence_for(own) == 9.0
    assert Settings().cadence_for(attrs.evolve(own, cadence=None)) == 1800.0


def test_the_command_line_overrides_provider_and_store() -> None:
    settings = Settings(providers={"box": BOX}, origins={})
    changed = settings.overridden(provider="box", store=Path("/s"))
    assert changed.provider() is BOX
    assert changed.batch_for() == 5
    assert changed.store.path == Path("/s")
    assert changed.origins == {"embedding.provider": "--provider", "store.path": "--store"}
    with pytest.raises(UsageError, match='"nope" is not known; known: box, local'):
        settings.overridden(provider="nope")
    codex = Settings(providers={"c": ProviderSettings(kind="codex")})
    with pytest.raises(UsageError, match="cannot embed"):
        codex.overridden(provider="c")
