"""The circuit alone; with lanes it is in ``tests/laws``."""

from __future__ import annotations

from embedkit import Circuit, ProviderCircuitOpen, ProviderTimeout


def test_it_is_closed_until_it_trips() -> None:
    circuit = Circuit()
    assert (circuit.is_open, circuit.cause, circuit.shed) == (False, None, 0)
    error = ProviderTimeout("late")
    circuit.trip(error)
    assert (circuit.is_open, circuit.cause, circuit.shed) == (True, error, 0)


def test_the_first_cause_wins() -> None:
    circuit, first = Circuit(), ProviderTimeout("first")
    circuit.trip(first)
    circuit.trip(ProviderTimeout("second"))
    assert circuit.cause is first


def test_a_refusal_is_a_fact_of_its_own_and_names_its_cause() -> None:
    circuit, error = Circuit(), ProviderTimeout("late")
    circuit.trip(error)
    one, other = circuit.refusal(), circuit.refusal()
    assert one is not other
    assert type(one) is ProviderCircuitOpen
    assert one.__cause__ is other.__cause__ is error
    assert one.durable_code == "KB_VECTOR_EMBED_PROVIDER_CIRCUIT_OPEN"
