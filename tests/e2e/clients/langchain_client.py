"""LangChain's client for OpenAI: chat, streams, tool calls and their results, JSON.

usage: langchain_client.py URL MODEL KEY      prints a line per check; exits 1 at the first that fails
"""
import json
import sys
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"It is sunny in {city}."


def check(name, condition, seen=""):
    print(("ok      " if condition else "FAILED  ") + name + (f"  ({seen})" if seen != "" else ""),
          flush=True)
    if not condition:
        sys.exit(1)


def asked(question):
    """Turns that show the small model how a call is written, then a question."""
    messages = []
    for number, city in enumerate(("Paris", "Berlin", "Madrid", "London")):
        messages += [HumanMessage(f"Weather in {city}?"),
                     AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": city},
                                                "id": f"call_{number}", "type": "tool_call"}])]
    return messages + [HumanMessage(question)]


def check_chat(chat):
    whole = chat.invoke("Name three colours.")
    check("chat: text", bool(whole.content), whole.response_metadata["finish_reason"])
    check("chat: usage", whole.usage_metadata["total_tokens"] ==
          whole.usage_metadata["input_tokens"] + whole.usage_metadata["output_tokens"])
    pieces = [piece.content for piece in chat.stream("Name three colours.")]
    check("stream: the same text", "".join(pieces) == whole.content and len(pieces) > 2)


def check_tools(chat):
    bound = chat.bind_tools([get_weather])
    messages = asked("Weather in Rome?")
    message = bound.invoke(messages)
    check("tools: a call", [(c["name"], c["args"]) for c in message.tool_calls] ==
          [("get_weather", {"city": "Rome"})], message.tool_calls)
    total = None
    for piece in bound.stream(messages):
        total = piece if total is None else total + piece
    check("tools streamed: the same call", total.tool_calls[0]["args"] == {"city": "Rome"} and
          total.tool_calls[0]["name"] == "get_weather")
    result = get_weather.invoke(message.tool_calls[0])
    check("tools: a result", isinstance(result, ToolMessage) and
          result.tool_call_id == message.tool_calls[0]["id"])
    answer = bound.invoke(messages + [message, result])
    check("tools: the result is taken", answer.usage_metadata["input_tokens"] >
          message.usage_metadata["input_tokens"] + 20)


class Paint(BaseModel):
    """A colour and how often to paint."""
    colour: Literal["red", "blue"]
    coats: int = Field(ge=1, le=3)


def check_json(chat):
    for method in ("function_calling", "json_schema"):
        paint = chat.with_structured_output(Paint, method=method).invoke("Paint the door.")
        check(f"structured output by {method}", isinstance(paint, Paint), paint)
    messages = []
    for thing, colour in (("grass", "green"), ("the sea", "blue"), ("coal", "black")):
        messages += [HumanMessage(f"Which colour has {thing}?"),
                     AIMessage(json.dumps({"thing": thing, "colour": colour}))]
    mode = chat.bind(response_format={"type": "json_object"})
    message = mode.invoke(messages + [HumanMessage("Which colour has snow?")])
    check("JSON mode: an object", set(json.loads(message.content)) == {"thing", "colour"},
          message.content)


def main():
    url, model, key = sys.argv[1:]
    chat = ChatOpenAI(base_url=url + "/v1", model=model, api_key=key, temperature=0, max_tokens=96,
                      max_retries=0, timeout=120)
    check_chat(chat)
    check_tools(chat)
    check_json(chat)
    print("all passed")


if __name__ == "__main__":
    main()
