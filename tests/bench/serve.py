"""What the serving benchmarks share: a cluster as a child, requests, the machine's name."""
import http.client
import json
import os
import platform
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
MODEL = os.path.join(CACHE, "refrain/models/SmolLM2-135M-Instruct.Q4_1.gguf")
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGESIZE")


def machine():
    name = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name} x{len(os.sched_getaffinity(0))}".replace(",", " ")


def commit():
    out = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                         capture_output=True, text=True, check=False)
    return out.stdout.strip() or "unknown"


class Cluster:
    """`with Cluster(build, flags) as cluster`: serves at cluster.url; ready_s: exec to ready."""

    def __init__(self, build, model, flags):
        self.folder = tempfile.mkdtemp(prefix="refrain-bench-")
        self.run_dir = os.path.join(self.folder, "run")
        self.log = open(os.path.join(self.folder, "log"), "w", encoding="utf-8")
        began = time.monotonic()
        self.process = subprocess.Popen(
            [os.path.join(build, "refrain"), "up", "--model", model, "--port", "0", "--run-dir",
             self.run_dir, *flags], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        self.ready_s = time.monotonic() - began
        if not line.startswith("ready "):
            raise SystemExit(f"refrain up did not start; its words are in {self.log.name}")
        self.url = line.split()[1]
        self.address = urllib.parse.urlsplit(self.url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()
        os.unlink(self.log.name)
        os.rmdir(self.folder)

    def pids(self):
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if self.run_dir.encode() in file.read():
                        found.append(int(name))
            except OSError:
                pass
        return found

    def post(self, path, body):
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port,
                                                timeout=600)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.load(response)
        connection.close()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status}: {answer}")
        return answer

    def admin(self, line):
        """A line to the admin socket of group 0; its answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.path.join(self.run_dir, "worker-0.admin.sock"))
            connection.sendall(line.encode() + b"\n")
            return json.loads(connection.makefile().readline())

    def stream(self, path, body):
        """Yields (seconds since the request was sent, event)."""
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port,
                                                timeout=600)
        began = time.monotonic()
        connection.request("POST", path, json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status}: {response.read().decode()}")
        for line in response:
            if line.startswith(b"data: {"):
                yield time.monotonic() - began, json.loads(line[6:])
        connection.close()


class Watch:
    """`with` a subclass of it: look() is called every so many seconds, by a thread."""

    def __init__(self, every_s):
        self.every_s, self.ended = every_s, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def look(self):
        raise NotImplementedError

    def watch(self):
        while not self.ended.wait(self.every_s):
            self.look()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * PAGE


def program_name(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().split(b"\0")
    name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    for flag in (b"--group", b"--rank"):
        if flag in words:
            name += f" {flag.decode()[2:]} {words[words.index(flag) + 1].decode()}"
    return name
