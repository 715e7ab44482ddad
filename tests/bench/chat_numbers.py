#!/usr/bin/env python3
"""What reuse is worth to chats: cache on beside off, the same answers, memory, silence. CSV.

usage: chat_numbers.py --chatbench FILE [--build DIR] [--model FILE] [--pairs N] [--requests N]
                       [--lock FILE] [WHAT...]

WHAT, all by default: sharedprefix random exact rounds interfere. The load is made by chatbench.py
(any OpenAI server's benchmark; it needs aiohttp, so run this with a Python that has it), but for
`rounds`: 12 chats of 6 turns that take turns in a pool for four of them, with the host tier. On and
off are two clusters at once, of which one serves: runs alternate, and each has text of its own.
--requests: fewer than the benchmark's 100 in a run. --lock: a file that is locked during a run, for
machines on which several measure.
"""
import argparse
import contextlib
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import serve

FLAGS = ["--groups", "1", "--max-model-len", "8192", "--max-num-seqs", "32"]
POLL_S = 0.02
SHARED, USER, ANSWER, CHATS, TURNS = 200, 100, 32, 12, 6
ROUNDS_LEAST = SHARED + CHATS * (TURNS * USER + TURNS - 1)  # an answer's last token has no KV yet
ROUNDS_FLAGS = ["--groups", "1", "--max-model-len", "1024", "--host-tier-memory", "256MiB"]
LONG_TOKENS = 4000


class Peak(serve.Watch):
    """`with Peak(cluster) as peak`: the most blocks that sequences held at once."""

    def __init__(self, cluster):
        super().__init__(POLL_S)
        self.cluster, self.blocks = cluster, 0

    def look(self):
        counts = self.cluster.admin("show blocks")
        self.blocks = max(self.blocks, counts["private"] + counts["shared"])


# Runs chatbench.py with another count of requests: words of the command line stay its own.
LOADER = ("import importlib, os, sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); "
          "bench = importlib.import_module(os.path.basename(sys.argv[1])[:-3]); "
          "bench.SHARED_REQUESTS = int(sys.argv[2]); del sys.argv[1:3]; bench.main()")


@contextlib.contextmanager
def alone(path):
    with open(path or os.devnull, "w", encoding="utf-8") as file:
        if path:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Chatbench:
    def __init__(self, args):
        self.path, self.requests, self.lock = args.chatbench, args.requests, args.lock
        self.model = os.path.splitext(os.path.basename(args.model))[0]

    def run(self, cluster, workload, seed):
        """The rows of one workload."""
        with tempfile.NamedTemporaryFile() as out, alone(self.lock):
            done = subprocess.run(
                [sys.executable, "-c", LOADER, self.path, str(self.requests),
                 "--base-url", cluster.url, "--model", self.model,
                 "--workload", workload, "--seed", str(seed), "--out", out.name],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(done.stdout)
            return json.load(out)["workloads"][workload]


def say(what, value, detail):
    print(f"{what},{value},{detail}", flush=True)


def open_pair(args):
    return [serve.Cluster(args.build, args.model, [*FLAGS, flag])
            for flag in ("--no-enable-prefix-caching", "--enable-prefix-caching")]


def alternate(args, bench, workload):
    """Seconds of each run: [off, on]."""
    seconds = [[], []]
    off, on = open_pair(args)
    with off, on:
        for number in range(args.pairs):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            for which in order:
                row = bench.run((off, on)[which], workload, 100 + number)[0]
                seconds[which].append(row["total_s"])
    return seconds


def spread(values):
    return " ".join(f"{value:.2f}" for value in values)


def sharedprefix(args, bench):
    off, on = alternate(args, bench, "sharedprefix")
    say("sharedprefix_off_s", f"{statistics.median(off):.2f}", spread(off))
    say("sharedprefix_on_s", f"{statistics.median(on):.2f}", spread(on))
    ratios = [a / b for a, b in zip(off, on)]
    say("sharedprefix_gain", f"{statistics.median(ratios):.2f}", spread(ratios))
    peaks = []
    for cluster in open_pair(args):  # runs of their own: looking takes time
        with cluster, Peak(cluster) as peak:
            bench.run(cluster, "sharedprefix", 200)
            peaks.append(peak.blocks)
    say("sharedprefix_peak_blocks_change", f"{100 * (peaks[1] / peaks[0] - 1):.1f}%",
        f"{peaks[0]} -> {peaks[1]}")


def random_prompts(args, bench):
    off, on = alternate(args, bench, "random")
    say("random_off_s", f"{statistics.median(off):.2f}", spread(off))
    say("random_on_s", f"{statistics.median(on):.2f}", spread(on))
    ratios = [100 * (b / a - 1) for a, b in zip(off, on)]
    say("random_on_slower", f"{statistics.median(ratios):.2f}%", spread(ratios))


def exact(args, bench):
    with serve.Cluster(args.build, args.model, FLAGS) as cluster:
        for row in bench.run(cluster, "exact", 1):
            say(f"exact_{row['pass']}", f"{row['same_as_cold']} of {row['of']}",
                f"{row['cached']} of {row['prompt']} tokens from cache")


def rounds(args, _bench):
    """Prompts are token ids, so that each count is worked out by hand."""
    head = [1000 + i * 7 % 500 for i in range(SHARED)]
    chats = [list(head) for _ in range(CHATS)]
    with serve.Cluster(args.build, args.model, ROUNDS_FLAGS) as cluster:
        block_bytes = cluster.admin("show memory")["block_bytes"]
    blocks = 4 * -(-(SHARED + TURNS * (USER + ANSWER)) // 16) + 8
    flags = [*ROUNDS_FLAGS, "--kv-cache-memory", str(blocks * block_bytes)]
    computed = prompt = 0
    with serve.Cluster(args.build, args.model, flags) as cluster:
        for turn in range(TURNS):
            for number, ids in enumerate(chats):
                ids += [2000 + (number * 977 + turn * 131 + i * 17) % 20000 for i in range(USER)]
                answer = cluster.post("/v1/completions", {
                    "prompt": ids, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True,
                    "return_token_ids": True})
                usage = answer["usage"]
                prompt += usage["prompt_tokens"]
                computed += (usage["prompt_tokens"] -
                             usage["prompt_tokens_details"]["cached_tokens"])
                ids += answer["choices"][0]["token_ids"]
            if turn == TURNS - 2:
                say("rounds_12x5_computed", computed, f"least {ROUNDS_LEAST - CHATS * (USER + 1)}")
    say("rounds_12x6_computed", computed,
        f"least {ROUNDS_LEAST} of {prompt} prompt tokens; pool of {blocks} blocks")


def interfere(args, bench):
    silences, steps = [], []
    with serve.Cluster(args.build, args.model, FLAGS) as cluster:
        budget = cluster.admin("show info")["max_num_batched_tokens"]
        for number in range(min(args.pairs, 3)):
            ids = [1000 + (number * 7919 + i * 31) % 40000 for i in range(LONG_TOKENS)]
            with alone(args.lock):
                began = time.monotonic()
                cluster.post("/v1/completions",
                             {"prompt": ids, "max_tokens": 1, "temperature": 0})
            steps.append((time.monotonic() - began) / -(-LONG_TOKENS // budget))
            row = bench.run(cluster, "interfere", 300 + number)[0]
            silences.append(row["during_itl_max_ms"] / 1e3)
    step, silence = statistics.median(steps), statistics.median(silences)
    say("interfere_step_s", f"{step:.2f}", f"a full one of {budget} tokens, alone; {spread(steps)}")
    say("interfere_silence_s", f"{silence:.2f}", spread(silences))
    say("interfere_silence_steps", f"{silence / step:.2f}",
        f"longest of each run: {spread(s / step for s in silences)}")


WHAT = {"sharedprefix": sharedprefix, "random": random_prompts, "exact": exact, "rounds": rounds,
        "interfere": interfere}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--chatbench", required=True)
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--lock")
    parser.add_argument("what", nargs="*", metavar="WHAT", help=" ".join(WHAT))
    args = parser.parse_args()
    if not set(args.what) <= set(WHAT):
        parser.error(f"WHAT: one of {' '.join(WHAT)}")
    print(f"# machine {serve.machine()}, commit {serve.commit()}, refrain up {' '.join(FLAGS)}, "
          f"{args.pairs} runs of {args.requests} requests")
    print("what,value,detail")
    bench = Chatbench(args)
    for name in args.what or WHAT:
        WHAT[name](args, bench)


if __name__ == "__main__":
    main()
