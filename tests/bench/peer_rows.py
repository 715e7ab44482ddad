"""What bench_peers.py measures of one server, each once: prefill, decode, batch, turn, interfere,
shared. Every function takes (server, text, run) and returns {row: value}; text of one seed is the
same for every server, and new in every run.
"""
import asyncio
import random
import statistics

import http_stream

WORDS = ("time year people way day man thing woman life child world school state family student group "
         "country hand part place case week company system question work number night point home "
         "water room mother area money story fact month lot right study book eye job word business "
         "side kind head house service friend father power hour game line end member law car city").split()
PREFILL, CONTEXTS, BATCHES = (512, 2048, 6000), (100, 2000, 4000), (4, 16, 32)
DECODE_TOKENS, BATCH_PROMPT = 128, 64
CHATS, CHATS_AT_ONCE, CHAT_BEFORE, CHAT_NEW, CHAT_ANSWER = 8, 4, 710, 70, 48
STREAMS, LONG_PROMPT, STREAM_TOKENS, CALM_EVENTS = 4, 4000, 2000, 16
SHARED_PREFIX, SHARED_NEW, SHARED_ANSWER, SHARED_AT_ONCE = 1000, 30, 16, 8
SPECIAL_TOKENS = 17  # SmolLM2's first ids have no text, and a token without text is no silence
TEMPLATE_MAX = 64  # tokens that a chat template may put before a prompt, which stay cached


class Text:
    """Prompts by their length in tokens, as the first server counted two of them."""

    def __init__(self, server):
        few, many = (len_of(server, words(count, "length")) for count in (100, 300))
        self.per_word = (many - few) / 200
        self.template = few - 100 * self.per_word

    def words(self, tokens, *seed):
        return words(max(1, round(tokens / self.per_word)), *seed)

    def prompt(self, tokens, *seed):
        return [{"role": "user", "content": self.words(tokens - self.template, *seed)}]


def words(count, *seed):
    draw = random.Random(repr(seed))
    return " ".join(draw.choice(WORDS) for _ in range(count))


def len_of(server, content):
    return run(ask(server, [{"role": "user", "content": content}], 1)).prompt_tokens


def ask(server, messages, tokens, **more):
    return http_stream.ask(server.url, messages, tokens, model=server.model, **more)


def run(coroutine):
    return asyncio.run(coroutine)


def prefill(server, text, number, lengths=PREFILL):
    rows = {}
    for length in lengths:
        answer = run(ask(server, text.prompt(length, "prefill", length, number), 1))
        assert abs(answer.prompt_tokens - length) < 0.02 * length, answer.prompt_tokens
        assert answer.cached_tokens < TEMPLATE_MAX, answer.cached_tokens
        rows[f"prefill_{length}"] = (length - answer.cached_tokens) / answer.first_s
    return rows


def decode(server, text, _):
    """The same prompts in each run, so that only the first one computes them."""
    rows = {}
    for context in CONTEXTS:
        messages = text.prompt(context, "decode", context)
        run(ask(server, messages, 1))
        answer = run(ask(server, messages, DECODE_TOKENS))
        server.check_same(f"decode at {context}", answer.text)
        rows[f"decode_at_{context}"] = answer.decode_rate
    return rows


def batch(server, text, number, sizes=BATCHES, name="batch", **members):
    """Tokens per second of all streams while all of them decode."""
    rows = {}
    for size in sizes:
        answers = run(http_stream.in_turn(
            [ask(server, text.prompt(BATCH_PROMPT, name, size, number, i), DECODE_TOKENS, **members)
             for i in range(size)], size))
        opens = max(a.stamps[0] for a in answers)
        closes = min(a.stamps[-1] for a in answers)
        assert closes > opens, "the streams did not run at the same time"
        assert all(a.decode_rate > 0 for a in answers)
        rows[f"{name}_{size}"] = sum(sum(opens < at <= closes for at in a.stamps) *
                                    a.tokens_per_event for a in answers) / (closes - opens)
    return rows


def sampled(server, text, number, sizes=BATCHES):
    """The same as most chat clients ask for it."""
    return batch(server, text, number, sizes, "batch_sampled", temperature=0.7, top_p=0.9, seed=1)


async def _chat(server, text, number, chat):
    messages = [{"role": "system", "content": text.words(300, "turn", number)},
                {"role": "user", "content": text.words(CHAT_BEFORE - 300, "turn", number, chat)}]
    first = await ask(server, messages, CHAT_ANSWER)
    return [*messages, {"role": "assistant", "content": first.text},
            {"role": "user", "content": text.words(CHAT_NEW, "turn", number, chat, 2)}]


async def _turns(server, text, number):
    chats = await http_stream.in_turn([_chat(server, text, number, i) for i in range(CHATS)],
                                      CHATS_AT_ONCE)
    return await http_stream.in_turn([ask(server, messages, CHAT_ANSWER) for messages in chats],
                                     CHATS_AT_ONCE)


def turn(server, text, number):
    """First token of the second turn of chats that were all answered once."""
    answers = run(_turns(server, text, number))
    return {"turn_first_token": 1e3 * statistics.median(a.first_s for a in answers),
            "turn_first_token_worst": 1e3 * max(a.first_s for a in answers),
            "turn_computed": statistics.median(a.prompt_tokens - a.cached_tokens for a in answers)}


async def _interfere(server, text, number):
    seen, calm, stop = [0] * STREAMS, asyncio.Event(), asyncio.Event()

    def watch(i):
        def on_piece(piece):
            seen[i] += piece.count(b"data:")
            if min(seen) > CALM_EVENTS:
                calm.set()
        return on_piece
    with_text = {str(token): -100 for token in range(SPECIAL_TOKENS)}
    streams = [asyncio.create_task(ask(server, text.prompt(BATCH_PROMPT, "stream", number, i),
                                       STREAM_TOKENS, on_piece=watch(i), stop=stop,
                                       logit_bias=with_text))
               for i in range(STREAMS)]
    ready = asyncio.create_task(calm.wait())
    await asyncio.wait([ready, *streams], return_when=asyncio.FIRST_COMPLETED)
    if not calm.is_set():
        raise http_stream.StreamError("the streams ended before they were watched")
    beside = await ask(server, text.prompt(LONG_PROMPT, "long", number), 1)
    running = seen[:]
    while any(now <= then for now, then in zip(seen, running)):  # a silence at the end counts too
        if any(task.done() for task in streams):
            raise http_stream.StreamError("a stream ended before the long prompt was answered")
        await asyncio.sleep(0.005)
    stop.set()
    answers = await asyncio.gather(*streams)
    ends = beside.stamps[0]
    gaps = [b - a for answer in answers for a, b in zip(answer.stamps, answer.stamps[1:])
            if b > beside.sent and a < ends]
    return max(gaps), statistics.median(gaps), beside


def interfere(server, text, number):
    longest, median, beside = run(_interfere(server, text, number))
    alone = run(ask(server, text.prompt(LONG_PROMPT, "alone", number), 1))
    assert max(alone.cached_tokens, beside.cached_tokens) < TEMPLATE_MAX
    return {"silence": 1e3 * longest, "silence_median": 1e3 * median,
            "long_first_token": 1e3 * beside.first_s, "long_first_token_alone": 1e3 * alone.first_s}


def shared(server, text, requests):
    """Seconds of all requests, and their texts."""
    prefix = text.words(SHARED_PREFIX, "shared")
    bodies = [[{"role": "user", "content": f"{prefix} {text.words(SHARED_NEW, 'shared', i)}"}]
              for i in range(requests)]
    answers = run(http_stream.in_turn([ask(server, body, SHARED_ANSWER) for body in bodies],
                                      SHARED_AT_ONCE))
    return (max(a.stamps[-1] for a in answers) - min(a.sent for a in answers),
            [a.text for a in answers], statistics.median(a.cached_tokens for a in answers))
