#!/usr/bin/env python3
"""Start, idle CPU and memory of a whole cluster, as CSV (ready <= 1 s, idle <= 1 %).

usage: bench_start.py [--build DIR] [--model FILE] [--groups N] [--tp N] [--idle-seconds N]
"""
import argparse
import statistics
import time

import serve

STARTS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--groups", default="2")
    parser.add_argument("--tp", default="1")
    parser.add_argument("--idle-seconds", type=float, default=10)
    args = parser.parse_args()
    flags = ["--groups", args.groups, "--tp", args.tp]

    with open(args.model, "rb") as file:  # into the page cache
        while file.read(1 << 24):
            pass
    print(f"# machine {serve.machine()}, commit {serve.commit()}, "
          f"{args.groups} groups of {args.tp} ranks")
    print("what,value,unit,target")
    seconds = []
    for number in range(STARTS):
        with serve.Cluster(args.build, args.model, flags) as cluster:
            answer = cluster.post("/v1/completions", {"prompt": "1, 2, 3, 4, 5, 6,",
                                                      "max_tokens": 2, "temperature": 0})
            assert answer["choices"][0]["text"].startswith(" 7"), answer
            seconds.append(cluster.ready_s)
            if number < STARTS - 1:
                continue
            pids = cluster.pids()
            before = {pid: serve.cpu_seconds(pid) for pid in pids}
            time.sleep(args.idle_seconds)  # this is what is measured: nothing happening
            used = sum(serve.cpu_seconds(pid) - before[pid] for pid in pids)
            memory = {pid: serve.resident_bytes(pid) for pid in pids}
            names = {pid: serve.program_name(pid) for pid in pids}
    print(f"exec_to_ready_median,{statistics.median(seconds):.2f},s,1")
    print(f"exec_to_ready_max,{max(seconds):.2f},s,")
    print(f"idle_cpu_all_processes,{100 * used / args.idle_seconds:.2f},% of one core,1")
    for pid in sorted(pids):
        print(f"resident {names[pid]},{memory[pid] / 2**20:.1f},MiB,")


if __name__ == "__main__":
    main()
