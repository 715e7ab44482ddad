"""The openai package and tool calls: whole, streamed, async, results sent back; reasoning.

The model is small, so a history of calls shows it what to write; tools.jinja renders that history.

usage: openai_tools.py URL MODEL KEY      prints a line per check; exits 1 at the first that fails
"""
import asyncio
import json
import re
import sys

import openai

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"], "additionalProperties": False}}}
TOOLS = [WEATHER]
PAINT = {"type": "function", "function": {
    "name": "paint", "parameters": {
        "type": "object", "additionalProperties": False, "required": ["colour", "coats"],
        "properties": {"colour": {"enum": ["red", "blue"]},
                       "coats": {"type": "integer", "minimum": 1, "maximum": 3}}}}}


def check(name, condition, seen=""):
    print(("ok      " if condition else "FAILED  ") + name + (f"  ({seen})" if seen != "" else ""),
          flush=True)
    if not condition:
        sys.exit(1)


def call(city, number):
    return {"id": f"call_{number}", "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city})}}


def history(examples, question):
    """Turns whose answers are calls, one per city, then a question."""
    messages = []
    for words, cities in examples:
        messages += [{"role": "user", "content": words},
                     {"role": "assistant", "content": None,
                      "tool_calls": [call(city, number) for number, city in enumerate(cities)]}]
    return messages + [{"role": "user", "content": question}]


ONE = history([(f"Weather in {city}?", [city]) for city in ("Paris", "Berlin", "Madrid", "London")],
              "Weather in Rome?")
TWO = history([(f"Weather in {a} and {b}?", [a, b])
               for a, b in (("Paris", "Berlin"), ("Madrid", "London"), ("Vienna", "Oslo"),
                            ("Lisbon", "Prague"), ("Cairo", "Dublin"))],
              "Weather in Rome and Athens?")


def ask(client, model, messages, **more):
    return client.chat.completions.create(model=model, messages=messages, max_tokens=96,
                                          temperature=0, **more)


def join_stream(chunks):
    """(content, reasoning, calls by index, finish_reason); checks what each piece must have."""
    content, reasoning, calls, finish = "", "", {}, None
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                first = piece.index not in calls
                if first != bool(piece.id and piece.function.name and piece.type == "function"):
                    check("stream: id, type and name once, in the first piece", False, piece)
                entry = calls.setdefault(piece.index, {"id": piece.id, "arguments": "",
                                                       "name": piece.function.name, "pieces": 0})
                entry["arguments"] += piece.function.arguments or ""
                entry["pieces"] += 1
    return content, reasoning, calls, finish


def check_one_call(client, model):
    whole = ask(client, model, ONE, tools=TOOLS).choices[0]
    calls = whole.message.tool_calls
    check("whole: one call, no content", whole.message.content is None and len(calls) == 1)
    check("whole: function", calls[0].function.name == "get_weather" and
          json.loads(calls[0].function.arguments) == {"city": "Rome"}, calls[0].function.arguments)
    check("whole: id", re.fullmatch("call_[A-Za-z0-9]{24}", calls[0].id) is not None, calls[0].id)
    check("whole: finish_reason", whole.finish_reason == "tool_calls", whole.finish_reason)

    content, _, streamed, finish = join_stream(ask(client, model, ONE, tools=TOOLS, stream=True))
    check("stream: the same call, no content", content == "" and list(streamed) == [0] and
          streamed[0]["name"] == "get_weather")
    check("stream: the same arguments", streamed[0]["arguments"] == calls[0].function.arguments)
    check("stream: in several pieces", streamed[0]["pieces"] > 2, streamed[0]["pieces"])
    check("stream: the same finish_reason", finish == whole.finish_reason)
    with client.chat.completions.stream(model=model, messages=ONE, max_tokens=96, temperature=0,
                                        tools=TOOLS) as stream:
        final = stream.get_final_completion().choices[0]
    check("stream helper: the same call",
          final.message.tool_calls[0].function.arguments == calls[0].function.arguments)
    return whole.message


def check_results(client, model, message):
    """What the client was given goes back as it is, with a result."""
    asked = ONE + [message.model_dump(exclude_none=True),
                   {"role": "tool", "tool_call_id": message.tool_calls[0].id,
                    "content": json.dumps({"celsius": 22})}]
    answer = ask(client, model, asked, tools=TOOLS)
    before = ask(client, model, ONE, tools=TOOLS)
    check("result: it is part of the prompt",
          answer.usage.prompt_tokens > before.usage.prompt_tokens + 30, answer.usage.prompt_tokens)
    cached = answer.usage.prompt_tokens_details.cached_tokens
    check("result: prompt and call come from cache", cached >= before.usage.total_tokens - 20,
          cached)


def check_two_calls(client, model):
    calls = ask(client, model, TWO, tools=TOOLS).choices[0].message.tool_calls
    check("two: cities in order", [json.loads(c.function.arguments)["city"] for c in calls] ==
          ["Rome", "Athens"])
    check("two: ids differ", calls[0].id != calls[1].id)
    _, _, streamed, _ = join_stream(ask(client, model, TWO, tools=TOOLS, stream=True))
    check("two streamed: index 0 and 1", [json.loads(streamed[i]["arguments"])["city"]
                                          for i in (0, 1)] == ["Rome", "Athens"])
    single = ask(client, model, TWO, tools=TOOLS, parallel_tool_calls=False).choices[0]
    check("parallel_tool_calls false: one call", len(single.message.tool_calls) == 1)


def check_histories(client, model):
    """What clients send as a call's arguments, and a list without calls."""
    def tokens(message):
        return ask(client, model, [{"role": "user", "content": "a"}, message,
                                   {"role": "user", "content": "b"}]).usage.prompt_tokens

    def with_arguments(arguments):
        return tokens({"role": "assistant", "content": "", "tool_calls": [
            {"id": "abcdef123", "type": "function",
             "function": {"name": "f", "arguments": arguments}}]})
    check("history: null and empty arguments are {}",
          len({with_arguments(text) for text in ("{}", "null", "")}) == 1)
    check("history: no calls are no calls",
          tokens({"role": "assistant", "content": "c", "tool_calls": []}) ==
          tokens({"role": "assistant", "content": "c"}))


def check_choices(client, model):
    none = ask(client, model, ONE, tools=TOOLS, tool_choice="none").choices[0]
    check("tool_choice none: text", none.message.tool_calls is None and
          none.message.content.startswith("<tool_call>") and none.finish_reason == "stop")
    try:
        ask(client, model, ONE, tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "nobody"}})
        check("unknown function: BadRequestError", False)
    except openai.BadRequestError as error:
        check("unknown function: BadRequestError", error.param == "tool_choice", error.param)


def check_paint(name, choice, finish):
    calls = choice.message.tool_calls
    arguments = json.loads(calls[0].function.arguments)
    check(f"{name}: one call of the schema", len(calls) == 1 and
          calls[0].function.name == "paint" and set(arguments) == {"colour", "coats"} and
          arguments["colour"] in ("red", "blue") and arguments["coats"] in (1, 2, 3), arguments)
    check(f"{name}: no content, finish_reason", choice.message.content is None and
          choice.finish_reason == finish, choice.finish_reason)
    return calls[0].function.arguments


def check_forced(client, model):
    """A model that was shown no calls makes one all the same."""
    hello = [{"role": "user", "content": "Hello! Please paint the door."}]
    required = dict(tools=[PAINT], tool_choice="required", parallel_tool_calls=False)
    whole = check_paint("required", ask(client, model, hello, **required).choices[0], "tool_calls")
    content, _, calls, finish = join_stream(ask(client, model, hello, stream=True, **required))
    check("required streamed: the same", (content, calls[0]["arguments"], finish) ==
          ("", whole, "tool_calls"))
    named = dict(tools=[WEATHER, PAINT],
                 tool_choice={"type": "function", "function": {"name": "paint"}})
    whole = check_paint("named", ask(client, model, hello, **named).choices[0], "stop")
    content, _, calls, finish = join_stream(ask(client, model, hello, stream=True, **named))
    check("named streamed: the same", (content, calls[0]["name"], calls[0]["arguments"], finish) ==
          ("", "paint", whole, "stop"))
    two = ask(client, model, TWO, tools=TOOLS, tool_choice="required").choices[0].message
    check("required: several calls", [json.loads(c.function.arguments)["city"]
                                      for c in two.tool_calls][:2] == ["Rome", "Athens"])
    try:
        bad = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "strin"}}}}}
        ask(client, model, hello, tools=[bad], tool_choice="required")
        check("required: a schema that is none: BadRequestError", False)
    except openai.BadRequestError as error:
        check("required: a schema that is none: BadRequestError", error.param == "tools",
              error.message)


def check_reasoning(client, model):
    messages = []
    for number, word in ((2, "even"), (3, "odd"), (4, "even"), (7, "odd")):
        messages += [{"role": "user", "content": f"Is {number} even or odd?"},
                     {"role": "assistant", "content": f"It is {word}.",
                      "reasoning_content": f"I must look at {number}."}]
    messages.append({"role": "user", "content": "Is 8 even or odd?"})
    answer = ask(client, model, messages)
    whole = answer.choices[0].message
    counted = answer.usage.completion_tokens_details.reasoning_tokens
    check("reasoning: tokens are counted", 3 < counted < answer.usage.completion_tokens - 4,
          counted)
    check("reasoning: apart from content", whole.reasoning_content == "I must look at 8." and
          whole.content.startswith("It is"), whole.reasoning_content)
    check("reasoning: both names", whole.reasoning == whole.reasoning_content)
    content, reasoning, _, finish = join_stream(ask(client, model, messages, stream=True))
    check("reasoning streamed: the same", (content, reasoning, finish) ==
          (whole.content, whole.reasoning_content, "stop"))
    without = ask(client, model, messages, extra_body={"include_reasoning": False}).choices[0]
    check("include_reasoning false: content only", without.message.content == whole.content and
          not hasattr(without.message, "reasoning_content"))


async def check_async(url, model, key):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0) as client:
        async def one():
            stream = await client.chat.completions.create(
                model=model, messages=ONE, max_tokens=96, temperature=0, tools=TOOLS, stream=True)
            return join_stream([chunk async for chunk in stream])[2]
        together = await asyncio.gather(*(one() for _ in range(4)))
        check("async: 4 streams, the same call in each",
              {calls[0]["arguments"] for calls in together} == {'{"city": "Rome"}'})
        check("async: an id each", len({calls[0]["id"] for calls in together}) == 4)


def main():
    url, model, key = sys.argv[1:]
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=120)
    message = check_one_call(client, model)
    check_results(client, model, message)
    check_two_calls(client, model)
    check_histories(client, model)
    check_choices(client, model)
    check_forced(client, model)
    check_reasoning(client, model)
    asyncio.run(check_async(url, model, key))
    print("all passed")


if __name__ == "__main__":
    main()
