#!/usr/bin/env python3
"""Refrain through HTTP beside llama.cpp's llama-bench on the same file, in alternated runs, as CSV.

usage: bench_peers.py --llama-bench PATH [--build DIR] [--model FILE] [--runs N] [--threads N]
                      [--isa FAMILY]

Prefill of 512, 2,048 and 6,000 tokens, decode of one stream and of 4, 16 and 32 together; batches
have no peer in llama-bench and an empty ratio. llama-bench has no HTTP and no sampling in its
figures, so the comparison is in its favour. Run it on an idle machine: both use every core.
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
    parser.add_argument("--isa", default="auto")
    args = parser.parse_args()
    print(f"# machine {serve.machine()}, commit {serve.commit()}, family {args.isa}, medians of "
          f"{args.runs} alternated runs, tokens per second")
    print("what,refrain,llama_cpp,ratio", flush=True)
    flags = ["--groups", "1", "--threads", str(args.threads), "--cpu-isa", args.isa]
    with serve.Cluster(args.build, args.model, flags) as cluster:
        bench_serve.check_answer(cluster)
        for what, prompt, batch in (("prefill_512", 512, 0), ("prefill_2048", 2048, 0),
                                    ("prefill_6000", 6000, 0), ("decode_batch_1", 0, 1),
                                    ("decode_batch_4", 0, 4), ("decode_batch_16", 0, 16),
                                    ("decode_batch_32", 0, 32)):
            ours, theirs = [], []
            for run in range(args.runs):
                if prompt:
                    ids = bench_serve.random_ids(prompt, 77 * prompt + run)
                    ours.append(prompt / bench_serve.first_token_s(cluster, ids))
                else:
                    ours.append(bench_serve.decode(cluster, batch, 500 + run))
                if batch <= 1:
                    generate = 0 if prompt else bench_serve.DECODE_TOKENS
                    theirs.append(llama(args.llama_bench, args.model, args.threads, prompt,
                                        generate))
            a = statistics.median(ours)
            if theirs:
                b = statistics.median(theirs)
                print(f"{what},{a:.1f},{b:.1f},{a / b:.2f}", flush=True)
            else:
                print(f"{what},{a:.1f},,", flush=True)


if __name__ == "__main__":
    main()
