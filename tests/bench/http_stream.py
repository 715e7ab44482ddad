"""An OpenAI stream over a socket of its own, the same for every server that is measured.

`answer = await ask(url, body)` sends a chat request and reads to the end. Pieces are stamped as they
arrive and parsed after the stream has ended, so that the client costs little beside the server: both
share the cores. One connection per request: some servers drop a kept one. Whatever is no stream of
tokens (another status, an error event, a short answer) raises StreamError: nothing that failed is
measured.
"""
import asyncio
import json
import time
import urllib.parse

READ_BYTES = 1 << 16
CHAT = "/v1/chat/completions"


class StreamError(Exception):
    """The server did not answer as asked."""


class Answer:
    """When the tokens came and what they said; seconds are time.monotonic()'s."""

    def __init__(self):
        self.sent, self.stamps, self.text = 0.0, [], ""
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0

    @property
    def first_s(self):
        return self.stamps[0] - self.sent

    @property
    def tokens_per_event(self):
        """Some servers put tokens that come together into one event."""
        return self.completion_tokens / len(self.stamps)

    @property
    def decode_rate(self):
        """Tokens per second after the first event. A server that spins at a priority above the
        client's keeps it from reading: then the tokens come in a lump, and nothing was measured."""
        if len(set(self.stamps)) < len(self.stamps) / 2:
            raise StreamError("most tokens came at once: the client had no core to read them")
        return (self.completion_tokens - self.tokens_per_event) / (self.stamps[-1] - self.stamps[0])


def _head(address, body):
    data = json.dumps(body).encode()
    return (f"POST {CHAT} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


def _body_of(raw):
    """The body of a whole HTTP/1.1 answer, and for each byte of it the piece that brought it:
    [(end in the body, stamp)]."""
    text = b"".join(piece for _, piece in raw)
    ends, at = [], 0
    for stamp, piece in raw:
        at += len(piece)
        ends.append((at, stamp))
    head, _, _ = text.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    status = int(lines[0].split(b" ", 2)[1]) if lines[0].startswith(b"HTTP/1.") else 0
    at = len(head) + 4
    if b"transfer-encoding: chunked" not in head.lower():
        return status, text[at:], [(end - at, stamp) for end, stamp in ends]
    body, marks, piece = bytearray(), [], 0
    while at < len(text):
        line_end = text.find(b"\r\n", at)
        size = int(text[at:line_end].split(b";", 1)[0] or b"0", 16) if line_end > 0 else 0
        if size == 0:
            break
        at = line_end + 2
        body += text[at:at + size]
        at += size + 2
        while piece < len(ends) - 1 and ends[piece][0] < at - 2:
            piece += 1
        marks.append((len(body), ends[piece][1]))
    return status, bytes(body), marks


def _parse(answer, raw, whole):
    status, body, marks = _body_of(raw)
    if status != 200:
        raise StreamError(f"HTTP {status}: {body[:300].decode(errors='replace')}")
    at, mark, done = 0, 0, False
    for line in body.split(b"\n"):
        at += len(line) + 1
        while mark < len(marks) - 1 and marks[mark][0] < at - 1:
            mark += 1
        if line.strip() == b"data: [DONE]":
            done = True
        elif line.startswith(b"data:") and (whole or at <= len(body)):
            _event(answer, json.loads(line[5:]), marks[mark][1])
    if whole and not done:
        raise StreamError("the stream ended without [DONE]")
    if not answer.stamps:
        raise StreamError(f"no token came: {body[:300].decode(errors='replace')}")


def _event(answer, event, stamp):
    if event.get("error"):
        raise StreamError(str(event["error"])[:300])
    for choice in event.get("choices") or []:
        delta = choice.get("delta") or {}
        if delta.get("content"):
            answer.stamps.append(stamp)
            answer.text += delta["content"]
    usage = event.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    answer.prompt_tokens = usage.get("prompt_tokens") or answer.prompt_tokens
    answer.completion_tokens = usage.get("completion_tokens") or answer.completion_tokens
    answer.cached_tokens = details.get("cached_tokens") or answer.cached_tokens


async def ask(url, messages, tokens, on_piece=None, stop=None, model="default", **members):
    """The Answer of `tokens` greedy tokens. `on_piece(bytes)` sees what comes; when the event `stop`
    is set the connection is closed, and what has come is the answer (without counts). `members` are
    more of the request."""
    address = urllib.parse.urlsplit(url)
    body = {"model": model, "messages": messages, "max_tokens": tokens, "min_tokens": tokens,
            "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, **members}
    answer, raw = Answer(), []
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    answer.sent = time.monotonic()
    writer.write(_head(address, body))
    try:
        while not (stop and stop.is_set()):
            piece = await reader.read(READ_BYTES)
            if not piece:
                break
            raw.append((time.monotonic(), piece))
            if on_piece:
                on_piece(piece)
    finally:
        writer.close()
    _parse(answer, raw, not (stop and stop.is_set()))
    if not stop and answer.completion_tokens != tokens:
        raise StreamError(f"{answer.completion_tokens} tokens came, {tokens} were asked for")
    return answer


async def in_turn(coroutines, at_once):
    """The results, in order, with at most so many under way."""
    places = asyncio.Semaphore(at_once)

    async def one(coroutine):
        async with places:
            return await coroutine
    return await asyncio.gather(*(one(coroutine) for coroutine in coroutines))
