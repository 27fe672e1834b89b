"""Tiny GGUF models with random weights, to drive a real llama-server in the tests.

What the tests check is how a server keeps, reuses and recomputes a prompt, which depends on a
model's architecture and never on what the model knows. So the weights are noise, a model takes
well under 1 MB, and one CPU thread reads a prompt of 26,000 tokens in a few seconds.

* dense: "llama", where every layer attends to the whole context;
* sliding window: "gemma3", where five layers of six see only the last SLIDING_WINDOW tokens;
* hybrid: "lfm2", where layers with a recurrent state (a short convolution) and layers with
  attention take turns;
* recurrent: "mamba", where no layer attends: all that is kept of a prompt is one state.

Two properties make token counts predictable:

* one token per byte, and none added: a text of n ASCII characters is n tokens;
* an answer is made of lower-case letters alone, at any temperature, so that an answer put back
  in the next prompt becomes exactly the tokens that were generated.

To write all four into a directory: python tests/support/tiny_models.py DIR
"""

import math
import string
import sys
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf.vocab import bytes_to_unicode

CONTEXT_LENGTH = 131072
SLIDING_WINDOW = 512

_SEED = 2
_WIDTH = 64
_FEED_FORWARD = 128
_HEADS = 1  # the time that a long prompt takes is proportional to it
_HEAD_WIDTH = 32
_DENSE_LAYERS = 2
_SLIDING_WINDOW_LAYERS = 6  # llama.cpp makes every sixth layer of a gemma3 a global one
_HYBRID_LAYERS = 4
_RECURRENT_LAYERS = 2
_CONVOLUTION = 3  # tokens that a layer of lfm2 convolves
_SSM_CONVOLUTION = 4  # of mamba; its scan in llama.cpp wants a state of 16
_SSM_WIDTH = 2 * _WIDTH
_SSM_STATE = 16
_SSM_RANK = 4  # of what a layer's time steps are made from

_END = "<|end|>"  # llama.cpp wants an end token; it is the last of the vocabulary
_VOCABULARY = [bytes_to_unicode()[byte] for byte in range(256)] + [_END]  # id = byte value

# No default system prompt: the tests must know every character that a conversation becomes.
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)

# Component 0 of the hidden state holds _MARK, whatever the tokens: every embedding sets it and no
# layer writes to it. It stays positive through the last norm, so that a large negative weight on
# it puts a token's logit so far below the letters' that its probability underflows to zero.
_MARK = 8.0
_FORBID = -100.0

# Random queries match all keys about as well, which makes every answer follow the average of its
# prompt. Larger ones single tokens out, so that different prompts get different answers.
_QUERY_SCALE = 4.0

_Weights = npt.NDArray[np.float32]

_WRITE_TO_THE_HIDDEN_STATE = {
    "attn_output.weight", "ffn_down.weight", "shortconv.out_proj.weight", "ssm_out.weight"}
# llama.cpp wants these in F32, as it does every vector.
_F32 = ("ssm_a", "ssm_conv1d.weight", "shortconv.conv.weight")


def write_dense(path: Path) -> None:
    """Write a model in which every layer attends to the whole context."""
    _write(path, gguf.MODEL_ARCH.LLAMA, _DENSE_LAYERS)


def write_sliding_window(path: Path) -> None:
    """Write a model in which most layers see only the last SLIDING_WINDOW tokens."""
    _write(path, gguf.MODEL_ARCH.GEMMA3, _SLIDING_WINDOW_LAYERS)


def write_hybrid(path: Path) -> None:
    """Write a model in which every other layer keeps a recurrent state and the rest attend."""
    _write(path, gguf.MODEL_ARCH.LFM2, _HYBRID_LAYERS)


def write_recurrent(path: Path) -> None:
    """Write a model that keeps a state alone, and no token of the past."""
    _write(path, gguf.MODEL_ARCH.MAMBA, _RECURRENT_LAYERS)


def _attends(arch: gguf.MODEL_ARCH, layer: int) -> bool:
    """Whether a layer has attention, beside or instead of a recurrent state."""
    if arch == gguf.MODEL_ARCH.LFM2:
        return layer % 2 == 1
    return arch != gguf.MODEL_ARCH.MAMBA


def _head_width(arch: gguf.MODEL_ARCH) -> int:
    """The width of a head; llama.cpp wants an lfm2's together as wide as its hidden state."""
    return _WIDTH // _HEADS if arch == gguf.MODEL_ARCH.LFM2 else _HEAD_WIDTH


def _write(path: Path, arch: gguf.MODEL_ARCH, layers: int) -> None:
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_block_count(layers)
    writer.add_embedding_length(_WIDTH)
    writer.add_layer_norm_rms_eps(1e-6)
    if arch == gguf.MODEL_ARCH.MAMBA:
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_ssm_conv_kernel(_SSM_CONVOLUTION)
        writer.add_ssm_inner_size(_SSM_WIDTH)
        writer.add_ssm_state_size(_SSM_STATE)
        writer.add_ssm_time_step_rank(_SSM_RANK)
    else:
        writer.add_feed_forward_length(_FEED_FORWARD)
        writer.add_head_count(_HEADS)
        writer.add_key_length(_head_width(arch))
        writer.add_value_length(_head_width(arch))
    if arch == gguf.MODEL_ARCH.GEMMA3:
        writer.add_sliding_window(SLIDING_WINDOW)
    if arch == gguf.MODEL_ARCH.LFM2:
        # No heads of keys and values: that is how llama.cpp tells a recurrent layer.
        writer.add_head_count_kv([_HEADS * _attends(arch, layer) for layer in range(layers)])
        writer.add_shortconv_l_cache(_CONVOLUTION)
    _add_tokenizer(writer)
    for name, weights in _tensors(arch, layers).items():
        whole = weights.ndim == 1 or name.endswith(_F32)
        writer.add_tensor(name, weights if whole else weights.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    end_id = len(_VOCABULARY) - 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(_VOCABULARY)
    writer.add_token_types([gguf.TokenType.NORMAL] * end_id + [gguf.TokenType.CONTROL])
    # llama.cpp refuses a vocabulary without merges. Merging starts from single characters, so one
    # that joins two longer strings is never reached.
    writer.add_token_merges([f"{_END} {_END}"])
    writer.add_bos_token_id(end_id)  # never added, but would otherwise default to byte 11
    writer.add_eos_token_id(end_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT_TEMPLATE)


def _tensors(arch: gguf.MODEL_ARCH, layers: int) -> dict[str, _Weights]:
    """Make all the tensors, by name; a matrix has one row per output."""
    rng = np.random.default_rng(_SEED)

    def noise(rows: int, columns: int) -> _Weights:
        """A matrix that keeps the scale of what it multiplies."""
        return rng.standard_normal((rows, columns), dtype=np.float32) / math.sqrt(columns)

    def ones(size: int = _WIDTH) -> _Weights:
        return np.ones(size, dtype=np.float32)

    embeddings = rng.standard_normal((len(_VOCABULARY), _WIDTH), dtype=np.float32)
    embeddings[:, 0] = _MARK
    if arch == gguf.MODEL_ARCH.GEMMA3:
        embeddings /= math.sqrt(_WIDTH)  # this architecture multiplies them by as much
    output = 3 * noise(len(_VOCABULARY), _WIDTH)  # 3: a few likely letters, not one, not all
    output[:, 0] = _FORBID
    output[list(string.ascii_lowercase.encode()), 0] = 0
    last_norm = "token_embd_norm" if arch == gguf.MODEL_ARCH.LFM2 else "output_norm"
    tensors = {
        "token_embd.weight": embeddings,
        f"{last_norm}.weight": ones(),
        "output.weight": output,
    }
    head_width = _head_width(arch)
    attention = _HEADS * head_width
    for layer in range(layers):
        block = {"attn_norm.weight": ones()}
        if arch == gguf.MODEL_ARCH.MAMBA:
            # The state decays by exp(step * a) a token; the step is softplus of what ssm_dt makes.
            decay = np.arange(1, _SSM_STATE + 1, dtype=np.float32)
            block |= {
                "ssm_in.weight": noise(2 * _SSM_WIDTH, _WIDTH),
                "ssm_conv1d.weight": noise(_SSM_WIDTH, _SSM_CONVOLUTION),
                "ssm_conv1d.bias": 0 * ones(_SSM_WIDTH),
                "ssm_x.weight": noise(_SSM_RANK + 2 * _SSM_STATE, _SSM_WIDTH),
                "ssm_dt.weight": noise(_SSM_WIDTH, _SSM_RANK),
                "ssm_dt.bias": 0 * ones(_SSM_WIDTH),
                "ssm_a": -np.tile(decay, (_SSM_WIDTH, 1)),
                "ssm_d": ones(_SSM_WIDTH),
                "ssm_out.weight": noise(_WIDTH, _SSM_WIDTH),
            }
        elif _attends(arch, layer):
            block |= {
                "attn_q.weight": _QUERY_SCALE * noise(attention, _WIDTH),
                "attn_k.weight": noise(attention, _WIDTH),
                "attn_v.weight": noise(attention, _WIDTH),
                "attn_output.weight": noise(_WIDTH, attention),
            }
        else:
            block |= {
                "shortconv.conv.weight": noise(_WIDTH, _CONVOLUTION),
                "shortconv.in_proj.weight": noise(3 * _WIDTH, _WIDTH),
                "shortconv.out_proj.weight": noise(_WIDTH, _WIDTH),
            }
        if arch != gguf.MODEL_ARCH.MAMBA:
            block |= {
                "ffn_norm.weight": ones(),
                "ffn_gate.weight": noise(_FEED_FORWARD, _WIDTH),
                "ffn_up.weight": noise(_FEED_FORWARD, _WIDTH),
                "ffn_down.weight": noise(_WIDTH, _FEED_FORWARD),
            }
        if arch in (gguf.MODEL_ARCH.GEMMA3, gguf.MODEL_ARCH.LFM2) and _attends(arch, layer):
            block |= {
                "attn_q_norm.weight": _QUERY_SCALE * ones(head_width),  # undoes that of attn_q
                "attn_k_norm.weight": ones(head_width),
            }
        if arch == gguf.MODEL_ARCH.GEMMA3:
            block |= {"post_attention_norm.weight": ones(), "post_ffw_norm.weight": ones()}
        for name in _WRITE_TO_THE_HIDDEN_STATE & block.keys():
            block[name][0] = 0  # which leaves its mark alone
        tensors |= {f"blk.{layer}.{name}": weights for name, weights in block.items()}
    return tensors


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    write_dense(directory / "tiny-dense.gguf")
    write_sliding_window(directory / "tiny-sliding-window.gguf")
    write_hybrid(directory / "tiny-hybrid.gguf")
    write_recurrent(directory / "tiny-recurrent.gguf")
