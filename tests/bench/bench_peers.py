#!/usr/bin/env python3
"""Refrain beside llama-server and vLLM on the same file, by the same client, as CSV.

usage: bench_peers.py [--llama FOLDER] [--vllm FOLDER] [--build DIR] [--model FILE] [--runs N]
                      [--threads N] [--isa FAMILY] [--rows WHAT,WHAT...] [--requests N]

WHAT, all by default: prefill decode batch turn interfere shared start tp roofline. FOLDER of --llama
has llama-server; of --vllm it is one that peer_vllm.sh made. llama-server runs with flash attention
on and off and the better figure counts, for it has no setting that is good at both. Servers take
turns within a run; figures are medians over runs (`shared`, the longest, is one run: --requests of
it, 100 by default). `ratio` is how many times better than the best peer; `wanted` is a ratio or a
bound, and `met` says whether it was reached. Run it on an idle machine: every server uses every
core, and the client runs beside it.
"""
import argparse
import contextlib
import csv
import os
import signal
import statistics
import subprocess
import sys
import time

import peer_rows
import peer_servers
import serve

WHAT = ("prefill", "decode", "batch", "turn", "interfere", "shared", "start", "tp", "roofline")
NAMES = ("refrain", "llama_fa_on", "llama_fa_off", "vllm")
SHARED_S, SHARED_RATIO = 5, 2.9  # of 100 requests; beside vLLM, which once took 14.5 s: a ratio
OFF_REQUESTS = 25  # without the cache one request costs as much as another
BUDGET = 8192      # tokens of context, where memory is compared
BUDGET_FLAGS = ("--max-model-len", str(BUDGET), "--kv-cache-memory", "184MiB")
SETTLE_S = 10
FIRST_RUNS = 5


class Table:
    """Prints rows as they are known."""

    def __init__(self):
        self.writer = csv.writer(sys.stdout, lineterminator="\n")
        self.writer.writerow(["what", "unit", *NAMES, "ratio", "wanted", "met"])

    def row(self, what, unit, values, ratio=None, most=None, less=False):
        """`values` by server; wanted is `ratio` times the best peer, or at most `most` (at least,
        where less is more)."""
        ours = values["refrain"]
        theirs = [value for name, value in values.items() if name != "refrain"]
        times = None
        if theirs:
            times = min(theirs) / ours if less else ours / max(theirs)
        wanted, met = "", ""
        if most is not None:
            wanted = f"{'<=' if less else '>='} {most:g} {unit}"
            met = "yes" if (ours <= most if less else ours >= most) else "no"
        elif ratio is not None and times is not None:
            wanted, met = f"{ratio:g} x", "yes" if times >= ratio else "no"
        self.writer.writerow([what, unit, *(f"{values[name]:.4g}" if name in values else ""
                                            for name in NAMES),
                              "" if times is None else f"{times:.2f}", wanted, met])
        sys.stdout.flush()


@contextlib.contextmanager
def serving(servers):
    try:
        yield [server.start() for server in servers]
    finally:
        for server in servers:
            server.stop()


def busy_share(seconds):
    """Of the machine's processor time, for so long from now."""
    def ticks():
        with open("/proc/stat", encoding="utf-8") as file:
            values = [int(word) for word in file.readline().split()[1:9]]
        return sum(values), values[3] + values[4]  # all; idle and waiting for a disk
    total, idle = ticks()
    time.sleep(seconds)
    total_now, idle_now = ticks()
    return 1 - (idle_now - idle) / max(1, total_now - total)


def settle():
    """Threads of vLLM spin for a while behind its last answer, which the next server would pay."""
    deadline = time.monotonic() + SETTLE_S
    while busy_share(0.25) > 0.1 and time.monotonic() < deadline:
        pass


def alternate(servers, runs, measure, *more):
    """{row: {server: median}}"""
    text = peer_rows.Text(servers[0])
    seen = {}
    for number in range(runs):
        for server in servers:
            settle()
            for row, value in measure(server, text, number, *more).items():
                seen.setdefault(row, {}).setdefault(server.name, []).append(value)
    return {row: {name: statistics.median(values) for name, values in by_server.items()}
            for row, by_server in seen.items()}


def prefill(args, table):
    with serving([peer_servers.refrain(args), *peer_servers.peers(args)]) as servers:
        for row, values in alternate(servers, args.runs, peer_rows.prefill).items():
            table.row(row, "tokens/s", values, ratio=1.5)


def decode(args, table):
    with serving([peer_servers.refrain(args), *peer_servers.peers(args)]) as servers:
        for row, values in alternate(servers, args.runs, peer_rows.decode).items():
            table.row(row, "tokens/s", values, ratio=1.2 if row == "decode_at_100" else 2)


def batch(args, table):
    for many, sizes in ((False, (4, 16)), (True, (32,))):
        with serving([peer_servers.refrain(args), *peer_servers.peers(args, many)]) as servers:
            rows = alternate(servers, args.runs, peer_rows.batch, sizes)
            rows |= alternate(servers, args.runs, peer_rows.sampled, sizes)
        for row, values in rows.items():
            table.row(row, "tokens/s", values, ratio=1.5 if row.endswith("_4") else 2)


def turn(args, table):
    with serving([peer_servers.refrain(args), *peer_servers.peers(args)]) as servers:
        rows = alternate(servers, args.runs, peer_rows.turn)
    table.row("turn_first_token", "ms", rows["turn_first_token"], ratio=3, less=True)
    table.row("turn_first_token_worst", "ms", rows["turn_first_token_worst"], less=True)
    table.row("turn_computed", "tokens", rows["turn_computed"], less=True)


def interfere(args, table):
    with serving([peer_servers.refrain(args), *peer_servers.peers(args)]) as servers:
        rows = alternate(servers, args.runs, peer_rows.interfere)
    table.row("silence", "ms", rows["silence"], most=150, less=True)
    table.row("silence_median", "ms", rows["silence_median"], less=True)
    table.row("long_first_token", "ms", rows["long_first_token"], less=True)
    table.row("long_first_token_alone", "ms", rows["long_first_token_alone"], less=True)
    beside = {name: value / rows["long_first_token_alone"][name]
              for name, value in rows["long_first_token"].items()}
    table.row("long_first_token_beside_streams", "x alone", beside, most=1.2, less=True)


def shared(args, table):
    seconds, cached = {}, {}
    servers = [peer_servers.refrain(args), *peer_servers.peers(args)]
    for server in servers:
        with serving([server]):
            text = peer_rows.Text(server) if server is servers[0] else text
            seconds[server.name], said, cached[server.name] = peer_rows.shared(
                server, text, args.requests)
            on = said if server is servers[0] else on
    with serving([peer_servers.refrain(args, "refrain", "--no-enable-prefix-caching")]) as alone:
        few = min(OFF_REQUESTS, args.requests)
        off, said, _ = peer_rows.shared(alone[0], text, few)
    if said != on[:few]:
        raise SystemExit("the cache changed an answer")
    off *= args.requests / few
    most = None if args.vllm else SHARED_S * args.requests / 100
    table.row(f"shared_{args.requests}_requests", "s", seconds, ratio=SHARED_RATIO, most=most,
              less=True)
    table.row("shared_cached_tokens", "tokens", cached)
    table.row(f"shared_{args.requests}_requests_cache_off", "s", {"refrain": off}, less=True)
    table.row("shared_on_beside_off", "x off", {"refrain": off / seconds["refrain"]}, most=6)


def start(args, table):
    peer_servers.warm_file(args.model)
    first, memory, full = {}, {}, {}
    for number in range(FIRST_RUNS):
        servers = [peer_servers.refrain(args, "refrain", *BUDGET_FLAGS)]
        if args.llama:
            servers += [peer_servers.llama(args, f"llama_fa_{fa}", "-c", str(BUDGET), "-fa", fa)
                        for fa in ("on", "off")]
        for server in servers:
            with serving([server]):
                first.setdefault(server.name, []).append(server.first_s)
                memory.setdefault(server.name, []).append(server.memory_bytes() / 2**20)
                if number == 0:
                    text = peer_rows.Text(server) if server is servers[0] else text
                    peer_rows.run(peer_rows.ask(server, text.prompt(6000, "memory"), 1))
                    full[server.name] = server.memory_bytes() / 2**20
    if args.vllm_server:
        server = args.vllm_server.start()
        print("# vLLM was started once, for all rows")
        first["vllm"], memory["vllm"] = [server.first_s], [server.start_bytes / 2**20]
    median = {name: statistics.median(values) for name, values in first.items()}
    table.row("start_to_first_token", "s", median, most=1, less=True)
    table.row("memory_at_start", "MiB", {name: max(values) for name, values in memory.items()},
              most=400, less=True)
    table.row("memory_after_6000_tokens", "MiB", full, most=400, less=True)


def tp(args, table):
    def measure(server, text, number):
        rows = peer_rows.batch(server, text, number, (1, 4))
        rows["prefill_512"] = peer_rows.prefill(server, text, number, (512,))["prefill_512"]
        return rows
    ranks = 8
    servers = [peer_servers.refrain(args, "tp1"),
               peer_servers.refrain(args, "tp8", "--tp", str(ranks), "--threads", "1")]
    with serving(servers) as both:
        for row, values in alternate(both, args.runs, measure).items():
            table.row(f"tp{ranks}_beside_tp1_{row}", "x", {"refrain": values["tp8"] / values["tp1"]},
                      most=0.5)


def roofline(args, table):
    """bench_model's share of the limits that it measures just before."""
    out = subprocess.run([f"{args.build}/bench_model", args.model, str(args.threads), args.isa,
                          str(args.runs), serve.commit()], check=True, capture_output=True,
                         text=True).stdout
    lines = [line for line in out.splitlines() if line.startswith("#")]
    print("\n".join(lines))
    for line in csv.DictReader(line for line in out.splitlines() if not line.startswith("#")):
        reached = " and ".join(f"{line[column]} {unit}" for column, unit in
                               (("gops", "GOP/s"), ("gb_s", "GB/s")) if line[column])
        table.row(f"roofline_{line['what']}_batch_{line['batch']}_at_{line['tokens']} ({reached})",
                  "share", {"refrain": float(line["share"])},
                  most=0.6 if line["what"] == "prefill" else 0.7)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--llama")
    parser.add_argument("--vllm")
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--rows", default=",".join(WHAT))
    parser.add_argument("--requests", type=int, default=100)
    args = parser.parse_args()
    unknown = set(args.rows.split(",")) - set(WHAT)
    if unknown:
        parser.error(f"no rows named {', '.join(sorted(unknown))}")
    print(peer_servers.conditions(args))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))  # through every `finally`
    table = Table()
    args.vllm_server = peer_servers.Vllm("vllm", args.vllm, args.threads) if args.vllm else None
    try:
        for what in args.rows.split(","):
            globals()[what](args, table)
    finally:
        if args.vllm_server:
            args.vllm_server.end()


if __name__ == "__main__":
    main()
