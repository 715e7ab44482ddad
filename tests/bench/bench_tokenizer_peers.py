#!/usr/bin/env python3
"""Encoding speed beside Hugging Face's `tokenizers`, one thread each, cold caches, alternated.

    bench_tokenizer_peers.py BUILD WORK [--runs N] [TOKENIZER...]

Needs the package tokenizers. TOKENIZER: paths of tokenizer.json files (default: Qwen2's vocabulary,
made from the lists of shared/cases). Texts are those of `bench_tokenizer --dump`. Each run is a
process of its own, ours and theirs in turn; the figures are CPU seconds of encoding alone and the
ratio is that of the medians. The number of ids must be equal, else the line says so and the exit
status is 1. CSV: tokenizer,text,megabytes,ids,ours_mb_per_s,theirs_mb_per_s,ratio
"""
import argparse
import gzip
import os
import statistics
import subprocess
import sys

PIECE_BYTES = 4096
THEIRS = r"""
import sys, time
from tokenizers import Tokenizer
path, file = sys.argv[1:]
with open(file, "rb") as f:
    data = f.read()
pieces, at = [], 0
while at < len(data):
    end = len(data)
    if end - at > PIECE:
        newline = data.rfind(b"\n", at, at + PIECE)
        end = newline + 1 if newline >= 0 else at + PIECE
        while newline < 0 and data[end] & 0xc0 == 0x80:
            end -= 1
    pieces.append(data[at:end].decode())
    at = end
tokenizer = Tokenizer.from_file(path)
start, ids = time.process_time(), 0
for piece in pieces:
    ids += len(tokenizer.encode(piece, add_special_tokens=False).ids)
print(len(data) * 1e-6, ids, time.process_time() - start)
""".replace("PIECE", str(PIECE_BYTES))


def make_qwen2(work):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    path = os.path.join(work, "qwen2.json")
    folder = os.path.join(os.path.dirname(__file__), "../../../shared/cases/tokenizer")
    with gzip.open(os.path.join(folder, "qwen2.tokens.txt.gz"), "rt", encoding="utf-8") as file:
        vocab = {line.rstrip("\n"): i for i, line in enumerate(file)}
    with gzip.open(os.path.join(folder, "qwen2.merges.txt.gz"), "rt", encoding="utf-8") as file:
        merges = [tuple(line.rstrip("\n").split(" ")) for line in file]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(path)
    return path


def run(command):
    environment = dict(os.environ, TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    megabytes, ids, seconds = done.stdout.split()[-3:]
    return float(megabytes), int(ids), float(seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("work")
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    bench = os.path.join(args.build, "bench_tokenizer")
    os.makedirs(args.work, exist_ok=True)
    equal = True
    print("tokenizer,text,megabytes,ids,ours_mb_per_s,theirs_mb_per_s,ratio")
    for path in args.tokenizers or [make_qwen2(args.work)]:
        for text in ("english", "chinese"):
            file = os.path.join(args.work, text + ".txt")
            subprocess.run([bench, "--dump", text, file], check=True, stdout=subprocess.DEVNULL)
            ours, theirs, ids = [], [], set()
            for _ in range(args.runs):
                for times, command in ((ours, [bench, "--peer", path, file]),
                                       (theirs, [sys.executable, "-c", THEIRS, path, file])):
                    megabytes, count, seconds = run(command)
                    times.append(megabytes / seconds)
                    ids.add(count)
            equal = equal and len(ids) == 1
            mine, other = statistics.median(ours), statistics.median(theirs)
            counts = "/".join(map(str, sorted(ids)))
            print(f"{os.path.basename(path)},{text},{megabytes:.3f},{counts},{mine:.1f},{other:.1f},{mine / other:.1f}",
                  flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
