"""The servers of bench_peers.py: how each is started, when it serves, what memory it holds.

Every class has a name, a url once start() has returned, and stop(); `first_s` is the time from exec
to the first token of an answer. Flags are those of shared/bench/PEERS.md, but for vLLM's dtype.
"""
import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import time

import http_stream
import serve

SLOTS, SLOTS_MANY = 16, 32
CONTEXT, CONTEXT_MANY = 131072, 32768
POLL_S = 0.01
START_S = 600
GREETING = [{"role": "user", "content": "Hello"}]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(root):
    """The process ids of `root` and all below it."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:  # grows on the way
        found += children.get(pid, [])
    return found


def memory_bytes(root):
    """Of all processes their own pages; of pages of files and shared memory, the most that one has:
    they are mostly the same."""
    own, common = 0, 0
    for pid in tree(root):
        rows = {}
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                for line in file:
                    if line.startswith("Rss"):
                        rows[line.split(":")[0]] = int(line.split()[1]) * 1024
        except OSError:
            continue
        own += rows.get("RssAnon", 0)
        common = max(common, rows.get("RssFile", 0) + rows.get("RssShmem", 0))
    return own + common


class Server:
    """A child process that serves at `url`; subclasses say which."""

    model = "default"
    environment = {}

    def __init__(self, name, command):
        self.name, self.command = name, command
        self.process = self.log = self.url = None
        self.first_s = 0.0
        self.said = {}

    def spawn(self):
        """Start self.process; self.url where it will listen, or None."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [*self.command, "--host", "127.0.0.1", "--port", str(port)], stdout=self.log,
            stderr=self.log, env={**os.environ, **self.environment}, start_new_session=True)

    def start(self):
        self.log = tempfile.NamedTemporaryFile("w", prefix="bench-peer-", suffix=".log",
                                               delete=False)
        began = time.monotonic()
        self.spawn()
        while True:
            try:
                answer = asyncio.run(http_stream.ask(self.url, GREETING, 1, model=self.model))
                break
            except (OSError, http_stream.StreamError):  # it does not listen, or still loads
                if self.process.poll() is not None or time.monotonic() > began + START_S:
                    self.stop()
                    raise SystemExit(f"{self.name} did not start: see {self.log.name}") from None
                time.sleep(POLL_S)
        self.first_s = answer.stamps[0] - began
        return self

    def check_same(self, what, text):
        """The same greedy prompt has the same answer every time. Of a peer it is not asked."""

    def memory_bytes(self):
        return memory_bytes(self.process.pid)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        if self.log:
            self.log.close()
            if self.process and self.process.returncode in (0, -signal.SIGTERM):
                os.unlink(self.log.name)
            self.log = None


class Refrain(Server):
    """`refrain up` with one group; it names its own port."""

    def __init__(self, name, build, model_file, flags):
        super().__init__(name, None)
        self.model = os.path.basename(model_file).removesuffix(".gguf")
        self.settings = build, model_file, ["--groups", "1", *flags]
        self.cluster = None

    def spawn(self):
        self.cluster = serve.Cluster(*self.settings)
        self.process, self.url = self.cluster.process, self.cluster.url

    def stop(self):
        if self.cluster:
            self.cluster.__exit__()
            self.cluster = None
        super().stop()

    def check_same(self, what, text):
        if self.said.setdefault(what, text) != text:
            raise SystemExit(f"{self.name}: {what}: '{text}' and before '{self.said[what]}'")


class Llama(Server):
    """llama-server of a folder of binaries."""

    def __init__(self, name, folder, model_file, threads, flags):
        super().__init__(name, [os.path.join(folder, "llama-server"), "-m", model_file, "-t",
                                str(threads), *flags])


class Vllm(Server):
    """`vllm serve` of a folder that peer_vllm.sh made: virtual environment (venv), model
    (smollm2-hf). It takes minutes to start, so one serves all rows; idle it uses no core."""

    model = "peer"

    def __init__(self, name, folder, threads):
        cores = sorted(os.sched_getaffinity(0))[:threads]
        super().__init__(name, [os.path.join(folder, "venv/bin/vllm"), "serve",
                                os.path.join(folder, "smollm2-hf"), "--served-model-name", "peer",
                                "--max-num-seqs", "32", "--max-model-len", "8192", "--dtype",
                                vllm_dtype(), "--enable-prompt-tokens-details",
                                "--gpu-memory-utilization", "0.3"])
        self.environment = {"VLLM_CPU_KVCACHE_SPACE": "2",
                            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
                            "LD_PRELOAD": f"{os.path.join(folder, 'venv/lib/libiomp5.so')}:"
                                          "libtcmalloc_minimal.so.4"}
        self.kept, self.start_bytes = False, 0

    def start(self):
        if self.kept and self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended by itself: see {self.log.name}")
        if not self.kept:
            super().start()
            self.kept, self.start_bytes = True, self.memory_bytes()
        return self

    def stop(self):
        """Of a row; end() is the server's."""
        if not self.kept:
            super().stop()

    def end(self):
        self.kept = False
        self.stop()


def vllm_dtype():
    """bfloat16 where the processor multiplies it; else float32 is six times as fast."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else "float32"


def refrain(args, name="refrain", *flags):
    return Refrain(name, args.build, args.model, ["--threads", str(args.threads), "--cpu-isa",
                                                  args.isa, "--max-num-seqs", "32", *flags])


def llama(args, name, *flags):
    return Llama(name, args.llama, args.model, args.threads, flags)


def peers(args, many=False):
    """llama-server with both attentions (neither wins everywhere), and vLLM where there is one."""
    slots = ["-np", str(SLOTS_MANY if many else SLOTS), "-c",
             str(CONTEXT_MANY if many else CONTEXT)]
    found = []
    if args.llama:
        found += [llama(args, "llama_fa_on", *slots, "-fa", "on"),
                  llama(args, "llama_fa_off", *slots, "-fa", "off")]
    return found + ([args.vllm_server] if args.vllm_server else [])


def warm_file(path):
    """Into the page cache."""
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def conditions(args):
    return (f"# machine {serve.machine()}, commit {serve.commit()}, family {args.isa}, "
            f"{args.threads} threads, medians of {args.runs} alternated runs"
            f"{', vLLM in ' + vllm_dtype() if args.vllm else ''}")
