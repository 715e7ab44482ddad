#!/usr/bin/env python3
"""Refrain through HTTP beside llama.cpp's llama-bench on the same file, in alternated runs, as CSV.

usage: bench_peers.py --llama-bench PATH [--build DIR] [--model FILE] [--runs N] [--threads N]

llama-bench has no HTTP and no sampling in its figures, so the comparison is in its favour. Run it on
an idle machine: both sides use every core.
"""
import argparse
import csv
import io
import os
import statistics
import subprocess

import bench_serve
import serve


def llama(path, model, threads, prompt, generate):
    out = subprocess.run([path, "-m", model, "-t", str(threads), "-p", str(prompt), "-n",
                          str(generate), "-r", "1", "-o", "csv"], check=True, capture_output=True,
                         text=True).stdout
    return float(next(csv.DictReader(io.StringIO(out)))["avg_ts"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    print(f"# machine {serve.machine()}, commit {serve.commit()}, medians of {args.runs} "
          "alternated runs, tokens per second")
    print("what,refrain,llama_cpp,ratio", flush=True)
    flags = ["--groups", "1", "--threads", str(args.threads)]
    with serve.Cluster(args.build, args.model, flags) as cluster:
        bench_serve.check_answer(cluster)
        for what, prompt, generate in (("prefill_512", 512, 0), ("prefill_2048", 2048, 0),
                                       ("decode_batch_1", 0, bench_serve.DECODE_TOKENS)):
            ours, theirs = [], []
            for run in range(args.runs):
                if prompt:
                    ids = bench_serve.random_ids(prompt, 77 * prompt + run)
                    ours.append(prompt / bench_serve.first_token_s(cluster, ids))
                else:
                    ours.append(bench_serve.decode(cluster, 1, 500 + run))
                theirs.append(llama(args.llama_bench, args.model, args.threads, prompt, generate))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"{what},{a:.1f},{b:.1f},{a / b:.2f}", flush=True)


if __name__ == "__main__":
    main()
