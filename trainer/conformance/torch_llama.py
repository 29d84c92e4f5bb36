"""Vectors from PyTorch for the trainer's forward, backward and optimizer.

Run by a person:  python torch_llama.py   (needs torch and safetensors from PyPI; see README.md for the versions used)

The model is transformers' LlamaForCausalLM with F64 weights (it still does norms, angles and softmax in F32). Written:
  torch_llama.safetensors   initial parameters and gradients of the first step (F32), batches of tokens (I32)
  torch_llama.json          configuration, versions, loss of the first step, losses and gradient norms of ten AdamW steps
Nothing here is taken from the Rust trainer.
"""

import hashlib
import json
import math
import pathlib

import numpy
import safetensors.torch
import torch
import transformers

STEPS = 10
CONFIG = dict(
    vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    intermediate_size=48, max_position_embeddings=16, rms_norm_eps=1e-5, tie_word_embeddings=False,
    attention_bias=False, mlp_bias=False, hidden_act="silu",
)
ROPE_THETA = 500000.0
BATCH = 3
OPTIMIZER = dict(learning_rate=3e-3, beta1=0.9, beta2=0.95, epsilon=1e-5, weight_decay=0.1, clip_norm=1.0)
SCHEDULE = dict(warmup_steps=3, decay_steps=20, end_learning_rate=3e-4)


def rate(step):
    """Linear warm-up to step `warmup_steps`, then half a cosine over `decay_steps`."""
    base, end = OPTIMIZER["learning_rate"], SCHEDULE["end_learning_rate"]
    if step < SCHEDULE["warmup_steps"]:
        return base * step / SCHEDULE["warmup_steps"]
    progress = min((step - SCHEDULE["warmup_steps"]) / SCHEDULE["decay_steps"], 1.0)
    return end + (base - end) * 0.5 * (1.0 + math.cos(math.pi * progress))


def main():
    here = pathlib.Path(__file__).parent
    torch.manual_seed(20260509)
    config = transformers.LlamaConfig(**CONFIG, rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA})
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than the usual 0.02, so that attention is not uniform and every gradient is well away from zero.
            parameter.copy_(1.0 + 0.1 * torch.randn_like(parameter) if parameter.dim() == 1 else 0.15 * torch.randn_like(parameter))
    initial = {f"initial.{name}": p.detach().clone() for name, p in model.named_parameters()}  # F32
    model = model.double()
    tokens = torch.randint(0, CONFIG["vocab_size"], (STEPS, BATCH, CONFIG["max_position_embeddings"] + 1), dtype=torch.int64)

    matrices = [p for p in model.parameters() if p.dim() == 2]
    gains = [p for p in model.parameters() if p.dim() == 1]
    groups = [dict(params=matrices, weight_decay=OPTIMIZER["weight_decay"]), dict(params=gains, weight_decay=0.0)]
    adamw = torch.optim.AdamW(groups, lr=0.0, betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), eps=OPTIMIZER["epsilon"], foreach=False)
    gradients, losses, norms = {}, [], []
    for step in range(1, STEPS + 1):
        batch = tokens[step - 1]
        logits = model(input_ids=batch[:, :-1]).logits
        assert logits.dtype == torch.float64
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, CONFIG["vocab_size"]), batch[:, 1:].reshape(-1))
        adamw.zero_grad()
        loss.backward()
        if step == 1:
            gradients = {f"gradient.{name}": p.grad.detach().float().clone() for name, p in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"], foreach=False).item())
        for group in adamw.param_groups:
            group["lr"] = rate(step)
        adamw.step()
        losses.append(loss.item())

    tensors = {**initial, **gradients, "tokens": tokens.to(torch.int32)}
    path = here / "torch_llama.safetensors"
    path.write_bytes(safetensors.torch.save(tensors, metadata={"format": "pt"}))
    document = {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": numpy.__version__},
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "model": {**CONFIG, "rope_theta": ROPE_THETA},
        "optimizer": OPTIMIZER,
        "schedule": SCHEDULE,
        "batch": BATCH,
        "losses": losses,
        "gradient_norms": norms,
    }
    (here / "torch_llama.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{path.stat().st_size} bytes, losses {losses}")


if __name__ == "__main__":
    main()
