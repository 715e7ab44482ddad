#!/usr/bin/env python3
"""Prefill and decode through HTTP, one group with all cores, as CSV.

usage: bench_serve.py [--build DIR] [--model FILE] [--tp N] [--runs N]

The answer is checked first: the prompt's continuation is the same computed and from cache. Prefill
is prompt tokens over the time to the first token of a stream; decode is tokens per second between
the moment when every stream has its first token and the moment when the first stream ends.
"""
import argparse
import random
import statistics
import threading

import serve

PREFILL = (512, 2048)
BATCHES = (1, 16)
DECODE_TOKENS = 128


def random_ids(count, seed):
    draw = random.Random(seed)
    return [draw.randrange(1000, 40000) for _ in range(count)]


def check_answer(cluster):
    body = {"prompt": random_ids(600, 1), "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    first, second = (cluster.post("/v1/completions", body) for _ in range(2))
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["choices"][0]["text"] == second["choices"][0]["text"], "the cache changed the text"
    assert cached >= 576, cached


def first_token_s(cluster, ids):
    body = {"prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    first = None
    for seconds, event in cluster.stream("/v1/completions", body):
        first = seconds if first is None else first
        if event.get("usage"):
            assert event["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    return first


def decode(cluster, batch, seed):
    """Tokens per second of `batch` streams together."""
    times = [[] for _ in range(batch)]

    def one(number):
        body = {"prompt": random_ids(16, seed * 100 + number), "max_tokens": DECODE_TOKENS,
                "temperature": 0, "ignore_eos": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        before = 0
        for _, event in cluster.stream("/v1/completions", body):
            tokens = (event.get("usage") or {}).get("completion_tokens", before)
            times[number] += [serve.time.monotonic()] * (tokens - before)
            before = tokens

    threads = [threading.Thread(target=one, args=(number,)) for number in range(batch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(t) == DECODE_TOKENS for t in times), [len(t) for t in times]
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    return sum(begin < at <= end for t in times for at in t) / (end - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--tp", default="1")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print(f"# machine {serve.machine()}, commit {serve.commit()}, tp {args.tp}, "
          f"median of {args.runs}")
    print("what,tokens_per_second,best,worst")
    with serve.Cluster(args.build, args.model, ["--groups", "1", "--tp", args.tp]) as cluster:
        check_answer(cluster)
        for count in PREFILL:
            rates = [count / first_token_s(cluster, random_ids(count, 10 * count + run))
                     for run in range(args.runs)]
            print(f"prefill_{count},{statistics.median(rates):.0f},{max(rates):.0f},"
                  f"{min(rates):.0f}", flush=True)
        for batch in BATCHES:
            rates = [decode(cluster, batch, 1000 * batch + run) for run in range(args.runs)]
            print(f"decode_batch_{batch},{statistics.median(rates):.1f},{max(rates):.1f},"
                  f"{min(rates):.1f}", flush=True)


if __name__ == "__main__":
    main()
