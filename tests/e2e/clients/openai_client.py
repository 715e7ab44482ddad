"""The openai package against a running Refrain: sync, async, streams, n, log-probabilities, errors.

usage: openai_client.py URL MODEL KEY      prints a line per check; exits 1 at the first that fails
"""
import asyncio
import sys

import openai

QUESTION = [{"role": "user", "content": "Name three colours, then stop."}]


def check(name, condition, seen=""):
    print(("ok      " if condition else "FAILED  ") + name + (f"  ({seen})" if seen != "" else ""),
          flush=True)
    if not condition:
        sys.exit(1)


def check_models(client, model):
    names = [entry.id for entry in client.models.list()]
    check("models.list", names == [model], names)
    check("models.retrieve", client.models.retrieve(model).id == model)


def check_whole_and_streamed(client, model):
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=QUESTION, max_tokens=24, temperature=0)
    group = raw.headers.get("x-refrain-group")
    whole = raw.parse()
    text = whole.choices[0].message.content
    check("x-refrain-group header", group in ("0", "1"), group)
    check("chat: text and finish", bool(text) and whole.choices[0].finish_reason in
          ("stop", "length"), whole.choices[0].finish_reason)
    usage = whole.usage
    check("chat: usage adds up",
          usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage.total_tokens)

    pieces, last, ids = [], None, set()
    with client.chat.completions.create(
            model=model, messages=QUESTION, max_tokens=24, temperature=0, stream=True,
            stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            ids.add(chunk.id)
            last = chunk
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
    check("stream: the same text", "".join(pieces) == text)
    check("stream: one id", len(ids) == 1)
    check("stream: usage in the last chunk",
          last.choices == [] and last.usage.completion_tokens == usage.completion_tokens)
    cached = last.usage.prompt_tokens_details.cached_tokens
    check("stream: the prompt comes from cache", cached >= usage.prompt_tokens - 17, cached)


def check_several(client, model):
    two = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=12, n=2,
                                         temperature=1.2, seed=7)
    check("n=2: two choices in order", [c.index for c in two.choices] == [0, 1])
    again = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=12, n=2,
                                           temperature=1.2, seed=7)
    check("seed: the same twice", [c.message.content for c in two.choices] ==
          [c.message.content for c in again.choices])
    texts = {0: "", 1: ""}
    for chunk in client.chat.completions.create(model=model, messages=QUESTION, max_tokens=12, n=2,
                                                temperature=1.2, seed=7, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    check("n=2 streamed: the same", [texts[0], texts[1]] ==
          [c.message.content for c in two.choices])
    done = client.completions.create(model=model, prompt=["One, two,", "Red, green,"],
                                     max_tokens=6, temperature=0)
    check("completions: two prompts", len(done.choices) == 2 and all(c.text for c in done.choices))
    logged = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=4,
                                            temperature=0, logprobs=True, top_logprobs=3)
    entries = logged.choices[0].logprobs.content
    check("logprobs: a token each, the best first", len(entries) == logged.usage.completion_tokens
          and all(len(e.top_logprobs) == 3 and e.logprob == e.top_logprobs[0].logprob
                  for e in entries))
    stopped = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=24, temperature=0,
        stop=[logged.choices[0].message.content[1:4]])
    check("stop: ends before the string", stopped.choices[0].finish_reason == "stop" and
          stopped.choices[0].message.content == logged.choices[0].message.content[:1])


def check_fields_of_vllm(client, model):
    """What vLLM takes beside OpenAI's fields, by extra_body, and what it answers."""
    def chat(**extra):
        more = {key: extra.pop(key) for key in ("logit_bias", "max_tokens", "logprobs", "stop",
                                                "top_logprobs", "stream") if key in extra}
        return client.chat.completions.create(
            model=model, messages=QUESTION, temperature=0, extra_body=extra,
            **{"max_tokens": 12, **more})
    plain = chat(return_token_ids=True)
    ids = plain.choices[0].token_ids
    check("return_token_ids: as many as usage says",
          len(ids) == plain.usage.completion_tokens
          and len(plain.prompt_token_ids) == plain.usage.prompt_tokens, len(ids))
    streamed, prompt_ids = [], None
    for chunk in chat(return_token_ids=True, stream=True):
        prompt_ids = prompt_ids or getattr(chunk, "prompt_token_ids", None)
        for choice in chunk.choices:
            streamed += getattr(choice, "token_ids", None) or []
    check("return_token_ids: the same streamed", streamed == ids
          and prompt_ids == plain.prompt_token_ids)
    biased = chat(logit_bias={str(ids[0]): -100}, return_token_ids=True)
    check("logit_bias: -100 bans a token", ids[0] not in biased.choices[0].token_ids)
    only = chat(allowed_token_ids=ids[:2], return_token_ids=True)
    check("allowed_token_ids", set(only.choices[0].token_ids) <= set(ids[:2]))
    word = plain.choices[0].message.content.split()[0]
    check("bad_words", not chat(bad_words=[word]).choices[0].message.content.startswith(word))
    scored = chat(prompt_logprobs=1)
    entries = scored.prompt_logprobs
    check("prompt_logprobs: null, then a dict per token",
          len(entries) == scored.usage.prompt_tokens and entries[0] is None
          and all(str(token) in entry for token, entry in
                  zip(plain.prompt_token_ids[1:], entries[1:])))
    named = chat(logprobs=True, return_tokens_as_token_ids=True)
    ended = plain.choices[0].finish_reason == "stop"  # by a token of no text, which has no entry
    check("return_tokens_as_token_ids", [entry.token for entry in named.choices[0].logprobs.content]
          == [f"token_id:{token}" for token in ids[:-1 if ended else None]])
    check("min_tokens and ignore_eos",
          chat(min_tokens=30, ignore_eos=True, max_tokens=30).usage.completion_tokens == 30)
    stop = plain.choices[0].message.content[2:6]
    stopped = chat(stop=[stop], include_stop_str_in_output=True).choices[0]
    check("include_stop_str_in_output and stop_reason",
          stopped.message.content.endswith(stop) and stopped.stop_reason == stop)
    cut = chat(truncate_prompt_tokens=5, return_token_ids=True)
    check("truncate_prompt_tokens: the last ones",
          cut.prompt_token_ids == plain.prompt_token_ids[-5:])
    check("request_id", chat(request_id="turn-7").id == "chatcmpl-turn-7")
    echo = client.completions.create(model=model, prompt="One, two, three", max_tokens=0, echo=True,
                                     logprobs=1)
    numbers = echo.choices[0].logprobs
    check("echo with logprobs and max_tokens 0",
          echo.choices[0].text == "One, two, three" and numbers.token_logprobs[0] is None
          and all(value < 0 for value in numbers.token_logprobs[1:])
          and "".join(numbers.tokens) == echo.choices[0].text
          and echo.usage.completion_tokens == 0)
    usages = [chunk.usage for chunk in client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=6, stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True})]
    counts = [usage.completion_tokens for usage in usages]
    check("continuous_usage_stats", None not in usages and counts == sorted(counts), counts)
    chat(vllm_xargs={"a": 1}, kv_transfer_params={}, a_field_of_tomorrow=[1])
    check("fields for others are ignored", True)


def check_forced_call(client, model):
    """This model's own template knows nothing of tools: the call is forced as bare JSON."""
    tool = {"type": "function", "function": {"name": "paint", "parameters": {
        "type": "object", "properties": {"colour": {"enum": ["red", "blue"]}},
        "required": ["colour"], "additionalProperties": False}}}
    choice = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=48, temperature=0, tools=[tool],
        tool_choice="required", parallel_tool_calls=False).choices[0]
    call = choice.message.tool_calls[0].function
    check("required: a call without a format of its own", call.name == "paint" and
          choice.finish_reason == "tool_calls" and choice.message.content is None and
          call.arguments.replace(" ", "") in ('{"colour":"red"}', '{"colour":"blue"}'),
          call.arguments)


def expect_error(name, kind, call, **attributes):
    try:
        call()
    except kind as error:
        seen = {key: getattr(error, key) for key in attributes}
        check(f"{name}: {kind.__name__}", seen == attributes, seen)
        return
    check(f"{name}: {kind.__name__}", False, "no error")


def check_errors(client, model, url):
    chat = client.chat.completions.create
    expect_error("empty messages", openai.BadRequestError, lambda: chat(model=model, messages=[]),
                 status_code=400, param="messages", type="invalid_request_error")
    expect_error("temperature -1", openai.BadRequestError,
                 lambda: chat(model=model, messages=QUESTION, temperature=-1),
                 status_code=400, param="temperature")
    expect_error("too long", openai.BadRequestError,
                 lambda: chat(model=model, messages=[{"role": "user", "content": "a b " * 9000}]),
                 status_code=400, code="context_length_exceeded")
    expect_error("unknown model", openai.NotFoundError,
                 lambda: chat(model="nobody", messages=QUESTION),
                 status_code=404, code="model_not_found", param="model")
    expect_error("logit_bias of no token", openai.BadRequestError,
                 lambda: chat(model=model, messages=QUESTION, logit_bias={"99999999": 1}),
                 status_code=400, param="logit_bias")
    expect_error("prompt_logprobs in a stream", openai.BadRequestError,
                 lambda: chat(model=model, messages=QUESTION, stream=True,
                              extra_body={"prompt_logprobs": 1}),
                 status_code=400, param="prompt_logprobs")
    expect_error("suffix", openai.BadRequestError,
                 lambda: client.completions.create(model=model, prompt="a", suffix="b"),
                 status_code=400, param="suffix", code="unsupported_parameter")
    expect_error("unknown model card", openai.NotFoundError, lambda: client.models.retrieve("x"),
                 status_code=404)
    expect_error("10 MB", openai.APIStatusError,
                 lambda: chat(model=model, messages=[{"role": "user", "content": "a" * 10**7}]),
                 status_code=413)
    stranger = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
    expect_error("wrong key", openai.AuthenticationError,
                 lambda: stranger.chat.completions.create(model=model, messages=QUESTION),
                 status_code=401)
    hasty = client.with_options(timeout=0.3)
    expect_error("client timeout", openai.APITimeoutError,
                 lambda: hasty.chat.completions.create(model=model, messages=QUESTION,
                                                       max_tokens=4000,
                                                       extra_body={"ignore_eos": True}))
    stream = chat(model=model, messages=QUESTION, max_tokens=4000, stream=True,
                  extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    check("stream closed early", True)


async def check_async(url, model, key):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0) as client:
        async def one(number):
            text = ""
            stream = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": f"Say {number}."}],
                max_tokens=8, temperature=0, stream=True)
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
            return text
        together = await asyncio.gather(*(one(number) for number in range(8)))
        check("async: 8 streams at a time", all(together))
        check("async: one more gives the same", await one(3) == together[3])


def main():
    url, model, key = sys.argv[1:]
    print(f"openai {openai.__version__}")
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=120)
    check_models(client, model)
    check_whole_and_streamed(client, model)
    check_several(client, model)
    check_fields_of_vllm(client, model)
    check_forced_call(client, model)
    check_errors(client, model, url)
    asyncio.run(check_async(url, model, key))
    print("all passed")


if __name__ == "__main__":
    main()
