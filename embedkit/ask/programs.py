"""Models behind a program of their vendor's: ``codex``, and ``gemini`` or ``agy``.

After its limit a program goes on for ``recovery_grace``: what it finishes then counts, if it is an answer by the same
rule as ever; if it is not, or nothing is finished, that is a timeout.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final

import trio

from embedkit.ask.children import Ended, run_child
from embedkit.ask.failing import AskFailed
from embedkit.ask.floor import is_answer
from embedkit.ask.program_words import Program, arguments_of, read_output, scrubbed
from embedkit.ask.results import Question, Said
from embedkit.errors import ProviderTimeout, UsageError
from embedkit.settings import ProviderSettings

PROGRAMS: Final[Mapping[Program, tuple[str, ...]]] = {"codex": ("codex",), "gemini-cli": ("gemini", "agy")}
_AT_ONCE = 1 << 18


class ProgramAdapter:
    """See ``Adapter``.

    Args:
        name: The provider's name in the settings.
        program: Which kind.
        described: Its settings.
        model: The model that is asked; ``None`` for the program's own choice.
        environ: The whole environment.
        recovery: ``ask.recovery_grace``.
        shortest: Characters below which an answer is suspected.

    Raises:
        AskFailed: ``not-found``: no program of that name is on PATH.
    """

    keeps_limit = True

    def __init__(
        self,
        name: str,
        program: Program,
        described: ProviderSettings,
        model: str | None,
        environ: Mapping[str, str],
        *,
        recovery: float,
        shortest: int,
    ) -> None:
        path = found_program(program, environ)
        if path is None:
            names = " or ".join(PROGRAMS[program])
            raise AskFailed("not-found", f"provider {name}: no program {names} is on PATH; install it", code="PROGRAM")
        self._name = name
        self._program: Program = program
        self._command = [path, *arguments_of(program, model)]
        self._environ = scrubbed(program, environ, described.api_key_env)
        self._floor = described.answer_floor
        self._recovery = recovery
        self._shortest = shortest

    async def attempt(self, question: Question) -> Said:
        """See ``Adapter.attempt``.

        Cancellation:
            The program was ended, and everything in its group with it.
        """
        if question.files:
            raise UsageError(f"provider {self._name}: files cannot be sent to it; put their text into the question")
        began_at, limit = trio.current_time(), question.limit.seconds
        given = question.text.encode("utf-8", "replace")
        try:
            ended = await run_child(self._command, given=given, environ=self._environ, limit=limit + self._recovery)
        except OSError as error:
            raise AskFailed("not-found", f"provider {self._name}: it cannot be started ({error.strerror})") from error
        is_late = trio.current_time() - began_at > limit
        if ended.was_killed:
            raise self._timeout(question)
        try:
            said = await self._read(ended)
        except AskFailed:
            if is_late:
                raise self._timeout(question) from None
            raise
        if is_late and not is_answer(said.text, self._floor, self._shortest):
            raise self._timeout(question)
        return said

    async def _read(self, ended: Ended) -> Said:
        if ended.is_cut:
            raise AskFailed("parse", f"provider {self._name}: it wrote more than can be an answer", code="PROGRAM")
        if len(ended.output) <= _AT_ONCE:
            return self._said(ended)
        return await trio.to_thread.run_sync(self._said, ended)

    def _said(self, ended: Ended) -> Said:
        errors = ended.errors.decode("utf-8", "replace")
        return read_output(self._program, self._name, ended.text, errors, ended.returncode)

    def _timeout(self, question: Question) -> ProviderTimeout:
        limit = question.limit
        return ProviderTimeout(
            f"provider {self._name}: no answer within {limit.seconds:g} s ({limit.rung}) "
            f"and {self._recovery:g} s more (ask.recovery_grace)"
        )


def found_program(program: Program, environ: Mapping[str, str]) -> str | None:
    """The path of a program, or ``None``."""
    paths = (shutil.which(name, path=environ.get("PATH", "")) for name in PROGRAMS[program])
    return next((path for path in paths if path), None)
