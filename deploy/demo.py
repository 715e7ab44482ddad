#!/usr/bin/env python3
"""Plays a four-turn chat against a running Refrain and prints what each turn cost.

usage: demo.py URL      e.g. demo.py http://127.0.0.1:8000
Standard library only; greedy, so that it says the same every time.
"""
import http.client
import json
import sys
import time
import urllib.parse

TURNS = [
    "Hello! I have one free day in Paris. What should I see in the morning?",
    "Nice. And where could I have lunch near there?",
    "What would you do in the afternoon if it rains?",
    "Thank you. Now sum up the whole day in one sentence.",
]
ANSWER_TOKENS_MAX = 80


def stream_chat(url, body):
    """Yield (kind, value): ("text", piece), ("usage", object), ("group", id)."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"error: status {response.status}: {response.read().decode()}")
    yield "group", response.getheader("x-refrain-group")
    for line in response:
        line = line.decode("utf-8").strip()
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line[len("data: "):])
        if event.get("usage"):
            yield "usage", event["usage"]
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content")
            if piece:
                yield "text", piece
    connection.close()


def play_turn(url, model, messages):
    body = {"model": model, "messages": messages, "temperature": 0, "stream": True,
            "max_tokens": ANSWER_TOKENS_MAX, "stream_options": {"include_usage": True}}
    began = time.monotonic()
    first = last = None
    text, usage, group = "", {}, "-"
    for kind, value in stream_chat(url, body):
        if kind == "text":
            last = time.monotonic()
            first = first or last
            text += value
        elif kind == "usage":
            usage = value
        else:
            group = value
    return text, usage, group, (first or began) - began, (last or began) - (first or began)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    url = sys.argv[1].rstrip("/")
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", "/v1/models")
    model = json.load(connection.getresponse())["data"][0]["id"]
    print(f"model {model}, four turns; the client sends the whole history every time\n")
    messages = []
    for number, question in enumerate(TURNS, 1):
        messages.append({"role": "user", "content": question})
        answer, usage, group, first_s, rest_s = play_turn(url, model, messages)
        messages.append({"role": "assistant", "content": answer})
        prompt = usage["prompt_tokens"]
        reused = usage["prompt_tokens_details"]["cached_tokens"]
        generated = usage["completion_tokens"]
        speed = (generated - 1) / rest_s if rest_s > 0 else 0
        print(f"you  > {question}")
        print(f"model> {' '.join(answer.split())[:200]}")
        print(f"turn {number}: prompt {prompt} tokens = {reused} reused + {prompt - reused} computed"
              f" | first token {first_s * 1e3:.0f} ms | {speed:.0f} tokens/s | group {group}\n",
              flush=True)


if __name__ == "__main__":
    main()
