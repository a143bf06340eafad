"""Chat models over HTTP: any OpenAI-compatible engine (llama.cpp, vLLM, LM Studio), Ollama, OpenRouter and grok.

An attempt has a connection of its own, opened and closed within it, so that aborting it leaves nothing behind. A chat
takes seconds, and opening a connection none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial

import attrs
import trio

from embedkit.ask import xai_files
from embedkit.ask.chat_wire import LARGEST_REPLY, PATHS, Language, question_of, read_answer
from embedkit.ask.failing import StreamSilent, ask_failed
from embedkit.ask.results import Question, Said
from embedkit.ask.stream_wire import ChatStream, streamed
from embedkit.ask.uploads import uploaded
from embedkit.errors import ProviderError, ProviderTimeout, ResponseInvalid, UsageError
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked
from embedkit.providers.http import HttpEndpoint, HttpExchange, open_exchange
from embedkit.providers.json_body import dump_json
from embedkit.settings import Limit, Settings

_AT_ONCE = 1 << 18  # bytes: above, parsing would hold up every other task for more than a millisecond


@attrs.frozen
class Way:
    """How a provider is asked: what its settings say, resolved.

    Attributes:
        language: Which its engine speaks.
        peer: ``host:port``, for messages.
        open_exchange: Opens a connection.
        fields: Of each request, besides ours.
        runner: For Ollama's runner.
        secrets: What was sent as keys; never shown.
        show_words: Given the engine's own words about a refusal.
        idle: Which limit a stream's silence has; ``None``: answers come whole.
        takes_files: Whether the engine has a Files API as xAI's.
        upload: What one upload may take; ``None`` for no bound.
    """

    language: Language
    peer: str
    open_exchange: Callable[[], AbstractAsyncContextManager[HttpExchange]]
    fields: Mapping[str, object]
    runner: Mapping[str, object]
    secrets: tuple[str, ...] = attrs.field(repr=False)
    show_words: Callable[[str], None] | None
    idle: Limit | None
    takes_files: bool
    upload: Limit | None


class HttpChat:
    """See ``Adapter``.

    Args:
        way: To the engine.
        model: The model that is asked.
    """

    def __init__(self, way: Way, model: str | None) -> None:
        self._way = way
        self._model = model

    @property
    def keeps_limit(self) -> bool:
        """Uploads have limits of their own, so the question's is kept here, from where it is asked."""
        return self._way.takes_files

    async def attempt(self, question: Question) -> Said:
        """See ``Adapter.attempt``.

        Cancellation:
            The connection is closed; nothing is known of what the engine goes on doing. What was uploaded was removed.
        """
        way = self._way
        asked = Asked(way.peer, [question.text], datetime.now(UTC), way.secrets, way.show_words)
        if question.files and not way.takes_files:
            raise UsageError(f"engine {way.peer}: files cannot be sent to it; put their text into the question")
        async with way.open_exchange() as exchange:
            if not question.files:
                return await self._within_limit(question, lambda: self._ask(exchange, question, asked))
            async with uploaded(exchange, question.files, way.upload, asked) as ids:
                return await self._within_limit(question, lambda: self._ask_about(exchange, question, ids, asked))

    async def _within_limit(self, question: Question, ask: Callable[[], Awaitable[Said]]) -> Said:
        if not self.keeps_limit:
            return await ask()
        limit = question.limit
        with trio.move_on_after(limit.seconds):
            return await ask()
        raise ProviderTimeout(f"engine {self._way.peer}: no complete answer within {limit.seconds:g} s ({limit.rung})")

    async def _ask(self, exchange: HttpExchange, question: Question, asked: Asked) -> Said:
        way = self._way
        document = question_of(way.language, self._model, question.text, way.fields, way.runner)
        if way.idle is not None:
            return await self._ask_for_stream(exchange, document, way.idle, asked)
        reply = await exchange.send("POST", PATHS[way.language], dump_json(document), max_bytes=LARGEST_REPLY)
        return await _read(partial(read_answer, way.language), reply, asked)

    async def _ask_for_stream(
        self, exchange: HttpExchange, document: dict[str, object], idle: Limit, asked: Asked
    ) -> Said:
        language = self._way.language
        stream = ChatStream(language)
        silence = trio.move_on_after(idle.seconds)

        def hear(part: bytes) -> None:
            if stream.feed(part):
                silence.deadline = trio.current_time() + idle.seconds
            if stream.broken is not None:
                silence.cancel()

        reply: Reply | None = None
        with silence:
            try:
                reply = await exchange.send(
                    "POST", PATHS[language], streamed(document, language), max_bytes=LARGEST_REPLY, on_part=hear
                )
            except ProviderError as error:
                raise ask_failed(error, stream.text) from error
        if reply is None and stream.broken is None:
            told = f"engine {asked.peer}: no event within {idle.seconds:g} s ({idle.rung}), after {stream.events}"
            raise StreamSilent(told, stream.text or None)
        if reply is None:
            raise ask_failed(ResponseInvalid(f"engine {asked.peer}: {stream.broken}"), stream.text)
        if not 200 <= reply.status < 300 or (not stream.events and reply.body.lstrip()[:1] == b"{"):
            # A refusal, or an engine that does not know streams and has answered whole.
            return await _read(partial(read_answer, language), reply, asked)
        return stream.said(reply, asked)

    async def _ask_about(self, exchange: HttpExchange, question: Question, ids: list[str], asked: Asked) -> Said:
        body = xai_files.write_question(self._model, question.text, ids, self._way.fields)
        reply = await exchange.send("POST", "/responses", body, max_bytes=LARGEST_REPLY)
        return await _read(xai_files.read_answer, reply, asked)


async def _read(reader: Callable[[Reply, Asked], Said], reply: Reply, asked: Asked) -> Said:
    if len(reply.body) <= _AT_ONCE:
        return reader(reply, asked)
    return await trio.to_thread.run_sync(reader, reply, asked, abandon_on_cancel=True)


class HttpChats:
    """The chat models of one provider of the settings: one endpoint for all of them.

    Raises:
        UsageError: Its key is not set, or something in its section cannot be sent.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        environ: Mapping[str, str],
        show_words: Callable[[str], None] | None = None,
    ) -> None:
        described = settings.provider(name)
        api_key = settings.api_key(name, environ)
        headers, of_headers = settings.added_to_requests(name, "headers", environ)
        query, of_query = settings.added_to_requests(name, "query", environ)
        given = {header.lower() for header in headers}
        bearer = [("Authorization", f"Bearer {api_key}")] if api_key and "authorization" not in given else []
        assert described.base_url is not None  # the settings' own validation
        self._endpoint = HttpEndpoint(
            described.base_url,
            headers=(*bearer, *headers.items()),
            query=query,
            ca_file=described.ca_file,
            proxy=settings.proxy_for(name, environ),
        )
        options = dict(described.options or {})
        if described.num_ctx is not None:
            options["num_ctx"] = described.num_ctx
        runner: dict[str, object] = {"options": options} if options else {}
        if described.keep_alive is not None:
            runner["keep_alive"] = described.keep_alive
        idle = Limit(described.stream_idle, f"providers.{name}.stream_idle")
        takes_files = described.kind == "grok"
        self._way = Way(
            language="ollama" if described.kind == "ollama" else "openai",
            peer=self._endpoint.peer,
            open_exchange=lambda: open_exchange(self._endpoint),
            fields=dict(described.body or {}),
            runner=runner,
            secrets=tuple(secret for secret in (api_key, *of_headers, *of_query) if secret),
            show_words=show_words,
            idle=idle if described.stream else None,
            takes_files=takes_files,
            upload=settings.upload_timeout(environ) if takes_files else None,
        )

    def chat(self, model: str | None) -> HttpChat:
        """How ``model`` is asked."""
        return HttpChat(self._way, model)
