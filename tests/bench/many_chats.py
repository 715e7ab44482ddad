#!/usr/bin/env python3
"""Many chats, and memory that stays below what was said at start. CSV, exit code 1 if it does not.

usage: many_chats.py [--build DIR] [--model FILE] [--chats N] [--turns N] [--at-once N]

Distinct chats (1,000 by default) of a few turns each with short answers, so many at once, in a pool
for a few of them and with a host tier. Every chat takes turn n before any takes turn n + 1: all of
them are known at the end. Resident memory of worker and router is read once a second and compared
with their own limits: `show memory` and refrain_router_resident_max_bytes.
"""
import argparse
import concurrent.futures
import random
import sys
import urllib.request

import serve

FLAGS = ["--groups", "1", "--max-model-len", "1024", "--kv-cache-memory", "128MiB",
         "--host-tier-memory", "64MiB", "--max-num-seqs", "32"]
WORDS = ("harbour copper meadow lantern violin glacier saddle orchard pepper thunder canvas marble "
         "willow anchor falcon velvet prairie compass ember quartz").split()


class Residents(serve.Watch):
    """`with Residents(pids) as residents`: the most that each held."""

    def __init__(self, pids):
        super().__init__(1)
        self.peak = dict.fromkeys(pids, 0)

    def look(self):
        for pid in self.peak:
            self.peak[pid] = max(self.peak[pid], serve.resident_bytes(pid))

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.look()


def metric(cluster, name):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(cluster.url + "/metrics", timeout=60) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " ") or line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
    raise SystemExit(f"no {name} on the page")


class Chat:
    def __init__(self, number):
        self.draw = random.Random(number)
        self.messages = [{"role": "system", "content": f"You are helper number {number}."}]

    def take_turn(self, cluster):
        text = " ".join(self.draw.choice(WORDS) for _ in range(24))
        self.messages.append({"role": "user", "content": text})
        answer = cluster.post("/v1/chat/completions", {
            "messages": self.messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
        self.messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=f"{serve.ROOT}/build")
    parser.add_argument("--model", default=serve.MODEL)
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=16)
    args = parser.parse_args()
    print(f"# machine {serve.machine()}, commit {serve.commit()}, refrain up {' '.join(FLAGS)}")
    print("what,value,detail")
    with serve.Cluster(args.build, args.model, FLAGS) as cluster:
        names = {pid: serve.program_name(pid) for pid in cluster.pids()}
        worker = next(pid for pid, name in names.items() if name.startswith("refrain-worker"))
        router = next(pid for pid, name in names.items() if name.startswith("refrain-router"))
        limits = {worker: cluster.admin("show memory")["resident_bytes_max"],
                  router: metric(cluster, "refrain_router_resident_max_bytes")}
        chats = [Chat(number) for number in range(args.chats)]
        counts = []
        residents = Residents(limits)
        with residents, concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
            for turn in range(args.turns):
                counts += pool.map(lambda chat: chat.take_turn(cluster), chats)
                print(f"turn_{turn + 1}_worker_mib,{serve.resident_bytes(worker) / 2**20:.1f},"
                      f"router {serve.resident_bytes(router) / 2**20:.1f}", flush=True)
        blocks = cluster.admin("check")
        assert blocks["check"] == "ok", blocks
        prompt, cached = (sum(column) for column in zip(*counts))
        print(f"requests,{len(counts)},{prompt} prompt tokens, {cached} of them from cache")
        for pid, name in ((worker, "worker"), (router, "router")):
            print(f"{name}_peak_mib,{residents.peak[pid] / 2**20:.1f},"
                  f"said at start: at most {limits[pid] / 2**20:.1f}")
        over = [pid for pid in limits if residents.peak[pid] > limits[pid]]
    sys.exit(1 if over or len(counts) != args.chats * args.turns else 0)


if __name__ == "__main__":
    main()
