#!/usr/bin/env python3
"""Tiny random models of architectures that the shared golden data lacks, and their logits from a
forward pass in numpy (float64, no cache), written from the papers and configs alone: an oracle that
shares no line with the decoder. Writes tests/golden/tiny/NAME/{config.json, model.safetensors,
golden.json, logits.f32} in the form of the shared ones. Compared once with transformers 5.24 in
float32: no logit is off by more than 1e-5 (phi4_mini with the divisors for long texts throughout).

    python3 tests/golden/make_tiny.py        # needs numpy; the same files every time

smollm3    every fourth layer does not rotate, tied
qwen2_moe  a shared expert with a gate of its own, weights not normalised, a dense layer, biases
phi4_mini  fused matrices, 12 of 16 dimensions rotate, longrope past its first context
cohere     parallel blocks, norms that subtract the mean, one for each head of q and k, biases,
           a factor of the logits
cohere2    parallel blocks that ranks sum once; three of four layers slide, the fourth neither
           slides nor rotates
"""
import json
import os
import struct

import numpy as np

VOCAB, HIDDEN, Q_HEADS, KV_HEADS, FFN, CONTEXT, EPS, THETA = 320, 16, 2, 1, 24, 512, 1e-5, 1e4


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def center(x, weight):
    """Layer norm of the last axis without a bias; weight may have a row per head."""
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def rotate_neighbours(x):
    """x [tokens, heads, dim]; pairs are (2i, 2i + 1)."""
    turns = np.arange(len(x))[:, None] * THETA ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * turns)[:, None, :]
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def rotate(x, rope):
    """x [tokens, heads, dim]; pairs are halves of the first `dims`."""
    half = rope["dims"] // 2
    turns = np.arange(len(x))[:, None, None] * (THETA ** (-np.arange(half) / half) / rope["divisors"])
    cos, sin = np.cos(turns) * rope["amplitude"], np.sin(turns) * rope["amplitude"]
    a, b = x[..., :half], x[..., half : 2 * half]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)


def attend(q, k, v, window=None):
    tokens, heads, dim = q.shape
    k, v = (np.repeat(t, heads // t.shape[1], 1) for t in (k, v))
    scores = np.einsum("thd,uhd->htu", q, k) / np.sqrt(dim)
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    if window is not None:
        scores[:, np.tril(np.ones((tokens, tokens), bool), -window)] = -np.inf
    return np.einsum("htu,uhd->thd", softmax(scores), v).reshape(tokens, -1)


def feed(x, w, name):
    if name + "gate_up_proj.weight" in w:
        gate, up = np.split(x @ w[name + "gate_up_proj.weight"].T, 2, 1)
    else:
        gate, up = (x @ w[name + part + "_proj.weight"].T for part in ("gate", "up"))
    return (silu(gate) * up) @ w[name + "down_proj.weight"].T


def feed_experts(x, w, name, config):
    scores = softmax(x @ w[name + "gate.weight"].T)
    out = feed(x, w, name + "shared_expert.")
    out = out / (1 + np.exp(-(x @ w[name + "shared_expert_gate.weight"].T)))
    for row in range(len(x)):
        for expert in np.argsort(-scores[row])[: config["num_experts_per_tok"]]:
            out[row] += scores[row, expert] * feed(x[row : row + 1], w, f"{name}experts.{expert}.")[0]
    return out


def forward(ids, w, config, dim, rope):
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        at = name + "self_attn."
        normed = norm(x, w[name + "input_layernorm.weight"])
        if at + "qkv_proj.weight" in w:
            parts = (Q_HEADS + np.array([0, KV_HEADS])) * dim
            q, k, v = np.split(normed @ w[at + "qkv_proj.weight"].T, parts, 1)
        else:
            q, k, v = (normed @ w[at + p + "_proj.weight"].T + w.get(at + p + "_proj.bias", 0) for p in "qkv")
        q, k, v = (t.reshape(len(ids), -1, dim) for t in (q, k, v))
        if config.get("no_rope_layers", [1] * (layer + 1))[layer]:
            q, k = rotate(q, rope), rotate(k, rope)
        x = x + attend(q, k, v) @ w[at + "o_proj.weight"].T
        normed = norm(x, w[name + "post_attention_layernorm.weight"])
        if name + "mlp.gate.weight" in w:
            x = x + feed_experts(normed, w, name + "mlp.", config)
        else:
            x = x + feed(normed, w, name + "mlp.")
    return norm(x, w["model.norm.weight"]) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def forward_cohere(ids, w, config, dim, rope):
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        at = name + "self_attn."
        normed = center(x, w[name + "input_layernorm.weight"])
        q, k, v = (normed @ w[at + p + "_proj.weight"].T + w.get(at + p + "_proj.bias", 0) for p in "qkv")
        q, k, v = (t.reshape(len(ids), -1, dim) for t in (q, k, v))
        if config["use_qk_norm"]:
            q, k = center(q, w[at + "q_norm.weight"]), center(k, w[at + "k_norm.weight"])
        slides = (layer + 1) % config.get("sliding_window_pattern", 1) != 0
        if slides or "sliding_window_pattern" not in config:
            q, k = rotate_neighbours(q), rotate_neighbours(k)
        attended = attend(q, k, v, config["sliding_window"] if slides else None)
        x = x + attended @ w[at + "o_proj.weight"].T + w.get(at + "o_proj.bias", 0) + feed(normed, w, name + "mlp.")
    return center(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T * config["logit_scale"]


# --- weights ---------------------------------------------------------------------------------------


class Weights(dict):
    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def matrix(self, name, rows, columns, size=1.3):
        values = self.rng.standard_normal((rows, columns)) * size / np.sqrt(columns)
        self[name] = values.astype("<f4")

    def vector(self, name, count, middle=1.0):
        self[name] = (middle + 0.3 * self.rng.standard_normal(count)).astype("<f4")

    def feed(self, name, ffn):
        for part, rows, columns in (("gate", ffn, HIDDEN), ("up", ffn, HIDDEN), ("down", HIDDEN, ffn)):
            self.matrix(f"{name}{part}_proj.weight", rows, columns)


def make_weights(config, dim, seed):
    w = Weights(seed)
    kind = config["architectures"][0]
    q_heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    w.matrix("model.embed_tokens.weight", VOCAB, HIDDEN, 4)
    w.vector("model.norm.weight", HIDDEN)
    w["model.norm.weight"] *= np.where(w.rng.random(HIDDEN) < 0.5, -0.6, 0.6).astype("<f4")
    if not config["tie_word_embeddings"]:
        w.matrix("lm_head.weight", VOCAB, HIDDEN, 4)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        w.vector(name + "input_layernorm.weight", HIDDEN)
        if not kind.startswith("Cohere"):
            w.vector(name + "post_attention_layernorm.weight", HIDDEN)
        if kind == "Phi3ForCausalLM":
            w.matrix(name + "self_attn.qkv_proj.weight", (Q_HEADS + 2 * KV_HEADS) * dim, HIDDEN)
            w.matrix(name + "mlp.gate_up_proj.weight", 2 * FFN, HIDDEN)
            w.matrix(name + "mlp.down_proj.weight", HIDDEN, FFN)
        else:
            for part, heads in (("q", q_heads), ("k", kv_heads), ("v", kv_heads)):
                w.matrix(f"{name}self_attn.{part}_proj.weight", heads * dim, HIDDEN)
                if kind == "Qwen2MoeForCausalLM" or config.get("attention_bias"):
                    w.vector(f"{name}self_attn.{part}_proj.bias", heads * dim, 0.0)
                if config.get("use_qk_norm") and part != "v":
                    w.vector(f"{name}self_attn.{part}_norm.weight", (heads, dim))
        w.matrix(name + "self_attn.o_proj.weight", HIDDEN, q_heads * dim)
        if config.get("attention_bias"):
            w.vector(name + "self_attn.o_proj.bias", HIDDEN, 0.0)
        if kind == "Qwen2MoeForCausalLM" and layer not in config["mlp_only_layers"]:
            w.matrix(name + "mlp.gate.weight", config["num_experts"], HIDDEN, 3)
            w.matrix(name + "mlp.shared_expert_gate.weight", 1, HIDDEN, 3)
            w.feed(name + "mlp.shared_expert.", config["shared_expert_intermediate_size"])
            for expert in range(config["num_experts"]):
                w.feed(f"{name}mlp.experts.{expert}.", config["moe_intermediate_size"])
        elif kind != "Phi3ForCausalLM":
            w.feed(name + "mlp.", FFN)
    return dict(w)


# --- files -----------------------------------------------------------------------------------------


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


def describe(ids, run):
    greedy, margins = [], []
    for _ in range(16):
        best = np.sort(run(ids + greedy)[-1])[-2:]
        greedy.append(int(run(ids + greedy)[-1].argmax()))
        margins.append(float(best[1] - best[0]))
    logits = run(ids)
    best = np.sort(logits, 1)
    largest = best[:, -1:]
    last = len(ids) - 1
    positions = [0, 1, 3, 5, 6] if last == 6 else [0, last // 4, last // 2, last - 1, last]
    return logits[positions], {
        "ids": ids,
        "argmax": logits.argmax(1).tolist(),
        "margin": (best[:, -1] - best[:, -2]).tolist(),
        "logsumexp": (np.log(np.exp(logits - largest).sum(1)) + largest[:, 0]).tolist(),
        "full_logit_positions": positions,
        "greedy": greedy,
        "greedy_margin": margins,
    }


def make(name, seed, dim, rope, **own):
    config = {
        "hidden_size": HIDDEN, "num_attention_heads": Q_HEADS, "num_key_value_heads": KV_HEADS,
        "intermediate_size": FFN, "vocab_size": VOCAB, "rms_norm_eps": EPS, "rope_theta": THETA,
        "max_position_embeddings": CONTEXT, "hidden_act": "silu", **own,
    }  # fmt: skip
    run = forward
    if config["architectures"][0].startswith("Cohere"):
        run = forward_cohere
        config["layer_norm_eps"] = config.pop("rms_norm_eps")
    weights = make_weights(config, dim, seed)
    wide = {key: values.astype(float) for key, values in weights.items()}
    rng = np.random.default_rng(seed + 1)
    rows, prompts = [], []
    for count in (7, 33, 130):
        ids = rng.integers(0, VOCAB, count).tolist()
        full, prompt = describe(ids, lambda all_ids: run(all_ids, wide, config, dim, rope))
        prompts.append({**prompt, "first_row": 5 * len(rows)})
        rows.append(full)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny", name)
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    for file, value in (("config.json", config), ("golden.json", {"vocab_size": VOCAB, "prompts": prompts})):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
            json.dump(value, out)
            out.write("\n")
    np.concatenate(rows).astype("<f4").tofile(os.path.join(folder, "logits.f32"))
    print(name, "logits spread by", round(float(np.concatenate(rows).std()), 2))


def main():
    plain = {"dims": 8, "divisors": 1.0, "amplitude": 1.0}
    make("smollm3", 3, 8, plain, architectures=["SmolLM3ForCausalLM"], num_hidden_layers=5,
         tie_word_embeddings=True, no_rope_layers=[1, 1, 1, 0, 1], no_rope_layer_interval=4,
         use_sliding_window=False, sliding_window=None, layer_types=["full_attention"] * 5)  # fmt: skip
    make("qwen2_moe", 11, 8, plain, architectures=["Qwen2MoeForCausalLM"], num_hidden_layers=3,
         tie_word_embeddings=False, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=8,
         shared_expert_intermediate_size=20, norm_topk_prob=False, mlp_only_layers=[1],
         decoder_sparse_step=1)  # fmt: skip
    short, far = [1.0, 1.02, 1.1, 1.2, 1.3, 1.5], [1.0, 1.5, 2.0, 4.0, 7.0, 11.0]
    long = {"dims": 12, "divisors": np.array(far),
            "amplitude": np.sqrt(1 + np.log(CONTEXT / 64) / np.log(64))}  # fmt: skip
    make("phi4_mini", 7, 16, long, architectures=["Phi3ForCausalLM"], num_hidden_layers=2, head_dim=16,
         tie_word_embeddings=True, partial_rotary_factor=0.75, original_max_position_embeddings=64,
         sliding_window=262144, rope_scaling={"type": "longrope", "short_factor": short,
                                              "long_factor": far})  # fmt: skip
    make("cohere", 5, 4, None, architectures=["CohereForCausalLM"], num_hidden_layers=3,
         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, use_qk_norm=True,
         attention_bias=True, logit_scale=0.8333333333)  # fmt: skip
    make("cohere2", 13, 4, None, architectures=["Cohere2ForCausalLM"], num_hidden_layers=5,
         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, use_qk_norm=False,
         attention_bias=False, logit_scale=0.25, sliding_window=21,
         sliding_window_pattern=4)  # fmt: skip


if __name__ == "__main__":
    main()
