#!/bin/bash
# On a machine with a GPU and SGLang: bash plugins/sglang/check.sh
# 1. our Triton kernels against PyTorch on 10,000 cases, and both timed;
# 2. SGLang's own chain kernel, audited;
# 3. an EAGLE model served with the plug-in (MODEL and DRAFT name another pair): one sampled path
#    of 4 tokens, then four; a request each.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}
draft=${DRAFT:-jamesliu1/sglang-EAGLE-Llama-3.1-Instruct-8B}
python -m pip install --quiet "$here/../.." && python -m pip install --quiet --no-deps "$here"
(cd "$here/../.." && python bench/triton_kernels.py --time)
otlp audit --engine sglang-chain --samples 20000 --max-paths 0
otlp audit --engine sglang-block --samples 20000 --max-paths 0

serve() {  # options of the drafting
    SGLANG_PLUGINS=otlp python -m sglang.launch_server --model-path "$model" --port 30000 \
        --speculative-algorithm EAGLE --speculative-draft-model-path "$draft" \
        --speculative-num-steps 4 "$@" &
    server=$!
    trap 'kill $server' EXIT
    for _ in $(seq 120); do
        curl --silent --fail http://127.0.0.1:30000/health > /dev/null && break
        sleep 5
    done
    curl --silent http://127.0.0.1:30000/generate -H 'Content-Type: application/json' \
        -d '{"text": "The capital of France is", "sampling_params": {"temperature": 1, "max_new_tokens": 64}}'
    echo
    curl --silent http://127.0.0.1:30000/get_server_info | tr ',' '\n' | grep -i accept_length
    kill "$server" && wait "$server" || true
    trap - EXIT
}

serve --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 --speculative-use-rejection-sampling
serve --speculative-eagle-topk 4 --speculative-num-draft-tokens 17
