"""Chat models over HTTP: any OpenAI-compatible engine (llama.cpp, vLLM, LM Studio), Ollama, OpenRouter and grok.

An attempt has a connection of its own, opened and closed within it, so that aborting it leaves nothing behind. A chat
takes seconds, and opening a connection none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import trio

from embedkit.ask.chat_wire import LARGEST_REPLY, PATHS, Language, read_answer, write_question
from embedkit.ask.results import Question, Said
from embedkit.errors import UsageError
from embedkit.providers.exchange import OpenExchange
from embedkit.providers.failures import Asked
from embedkit.providers.http import HttpEndpoint, open_exchange
from embedkit.settings import Settings

_AT_ONCE = 1 << 18  # bytes: above, parsing would hold up every other task for more than a millisecond


class HttpChat:
    """See ``Adapter``.

    Args:
        language: Which the engine speaks.
        peer: ``host:port``, for messages.
        model: The model that is asked.
        open_exchange: Opens a connection.
        fields: Of each request, besides ours.
        runner: For Ollama's runner.
        secrets: What was sent as keys; never shown.
        show_words: Given the engine's own words about a refusal.
    """

    def __init__(
        self,
        language: Language,
        peer: str,
        model: str | None,
        open_exchange: OpenExchange,
        *,
        fields: Mapping[str, object],
        runner: Mapping[str, object],
        secrets: tuple[str, ...] = (),
        show_words: Callable[[str], None] | None = None,
    ) -> None:
        self._language = language
        self._peer = peer
        self._model = model
        self._open_exchange = open_exchange
        self._fields = fields
        self._runner = runner
        self._secrets = secrets
        self._show_words = show_words

    async def attempt(self, question: Question) -> Said:
        """See ``Adapter.attempt``.

        Cancellation:
            The connection is closed; nothing is known of what the engine goes on doing.
        """
        if question.files:
            raise UsageError(f"engine {self._peer}: files cannot be sent to it; put their text into the question")
        body = write_question(self._language, self._model, question.text, self._fields, self._runner)
        async with self._open_exchange() as exchange:
            reply = await exchange.send("POST", PATHS[self._language], body, max_bytes=LARGEST_REPLY)
        asked = Asked(self._peer, [question.text], datetime.now(UTC), self._secrets, self._show_words)
        if len(reply.body) <= _AT_ONCE:
            return read_answer(self._language, reply, asked)
        return await trio.to_thread.run_sync(read_answer, self._language, reply, asked, abandon_on_cancel=True)


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
        self._language: Language = "ollama" if described.kind == "ollama" else "openai"
        self._secrets = tuple(secret for secret in (api_key, *of_headers, *of_query) if secret)
        self._fields = dict(described.body or {})
        self._show_words = show_words
        options = dict(described.options or {})
        if described.num_ctx is not None:
            options["num_ctx"] = described.num_ctx
        self._runner: dict[str, object] = {"options": options} if options else {}
        if described.keep_alive is not None:
            self._runner["keep_alive"] = described.keep_alive

    def chat(self, model: str | None) -> HttpChat:
        """How ``model`` is asked."""
        return HttpChat(
            self._language,
            self._endpoint.peer,
            model,
            lambda: open_exchange(self._endpoint),
            fields=self._fields,
            runner=self._runner,
            secrets=self._secrets,
            show_words=self._show_words,
        )
