#!/usr/bin/env python3
"""What is left of the model path's speed while one other process keeps a core busy, as CSV.

usage: bench_busy.py [--build DIR] [--model FILE] [--isa FAMILY] [--runs N] [--threads N]

Alternated runs of bench_model alone and beside a process that never waits; medians. Work is handed
out in small pieces, so that a thread which lost its core holds up one piece: at least 0.6 is wanted
on two cores.
"""
import argparse
import os
import statistics
import subprocess
import sys

import serve

BUSY = "while True: pass"


def run(args):
    out = subprocess.run([f"{args.build}/bench_model", args.model, str(args.threads), args.isa, "3",
                          "-", "quick"], check=True, capture_output=True, text=True).stdout
    rows = [line.split(",") for line in out.splitlines() if line.startswith(("prefill", "decode"))]
    return {row[0]: float(row[3]) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    alone, beside = [], []
    for _ in range(args.runs):
        alone.append(run(args))
        busy = subprocess.Popen([sys.executable, "-c", BUSY])
        try:
            beside.append(run(args))
        finally:
            busy.kill()
            busy.wait()
    print(f"# machine {serve.machine()}, commit {serve.commit()}, family {args.isa}, medians of "
          f"{args.runs} alternated runs, tokens per second")
    print("what,alone,beside_one_busy_process,kept")
    for what in ("prefill", "decode"):
        a = statistics.median(r[what] for r in alone)
        b = statistics.median(r[what] for r in beside)
        print(f"{what},{a:.1f},{b:.1f},{b / a:.2f}")


if __name__ == "__main__":
    main()
