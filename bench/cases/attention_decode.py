"""Attention of one query per sequence over many keys."""

from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.cases import Call, Case, launch_of, random
from instruments.backend import device
from kernels.attention import attention_decode, attention_decode_reference, attention_decode_traffic

RAGGED = ((1, 1, 1, 1, 1, 32), (3, 6, 2, 3, 70, 72), (2, 8, 1, 16, 1000, 128))
BF16 = torch.bfloat16


def _sdpa(*backends):
    """torch's attention, which takes fewer KV heads than query heads; by one of these backends, if any."""

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def forced(q, k, v):
        with sdpa_kernel(list(backends)):
            return attend(q, k, v)

    return forced if backends else attend


def _flex(keys: int):
    """FlexAttention, compiled; with a block mask, here of all keys, its kernel for few queries splits them."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    flex = torch.compile(flex_attention, dynamic=False)
    blocks = create_block_mask(lambda batch, head, query, key: key >= 0, None, None, 1, keys, device=device())
    return lambda q, k, v: flex(q, k, v, block_mask=blocks, enable_gqa=True)


def _decode(batch, heads, kv_heads, keys, flex=False, head_dim=128, dtype=BF16):
    shape = (batch, heads, kv_heads, 1, keys, head_dim)
    implementations = {
        "bytes-first": lambda: attention_decode,
        "torch": _sdpa,
        "cudnn": lambda: _sdpa(SDPBackend.CUDNN_ATTENTION),
        "fa2": lambda: _sdpa(SDPBackend.FLASH_ATTENTION),
        "eager ops": lambda: attention_decode_reference,
    }
    if batch == 1:  # what splitting alone gains
        implementations["bytes-first, one split"] = lambda: partial(attention_decode, splits=1)
    return Case(
        "attention_decode",
        (batch, heads, kv_heads, keys, head_dim),
        dtype,
        lambda: _tensors(*shape, dtype),
        attention_decode_traffic(*shape, dtype),
        lambda q, k, v: attention_decode_reference(q.double(), k.double(), v.double()),
        implementations | ({"flex": lambda: _flex(keys)} if flex else {}),
    )


def _paged(batch, heads, kv_heads, keys, page, head_dim=128, dtype=BF16):
    shape = (batch, heads, kv_heads, 1, keys, head_dim)
    return Case(
        f"attention_decode_pages_of_{page}",
        (batch, heads, kv_heads, keys, head_dim),
        dtype,
        lambda: _in_pages(*_tensors(*shape, dtype), page),
        attention_decode_traffic(*shape, dtype, page=page),
        lambda q, k, v, table: attention_decode_reference(q.double(), k.double(), v.double(), None, None, table),
        {"bytes-first": lambda: lambda q, k, v, table: attention_decode(q, k, v, None, None, table)},
    )


def _tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype):
    kv = (batch, kv_heads, keys, head_dim)
    return random(batch, heads, queries, head_dim, dtype=dtype), random(*kv, dtype=dtype), random(*kv, dtype=dtype)


def _in_pages(q, k, v, page):
    """The keys and values cut into pages, and a table that lists them in random order."""
    batch, _, keys, _ = k.shape
    k, v = (x.unflatten(2, (keys // page, page)).transpose(1, 2).flatten(0, 1).contiguous() for x in (k, v))
    return q, k, v, torch.randperm(len(k), device=k.device).view(batch, -1).int()


def cases() -> list[Case]:
    return [
        _decode(1, 32, 8, 32768, flex=True),
        _decode(16, 32, 8, 8192, flex=True),
        _decode(17, 32, 8, 8192),  # slightly more pairs of a sequence and a KV head than SMs
        _decode(64, 32, 8, 2048),
        *(_paged(batch, 32, 8, keys, page) for batch, keys in ((1, 32768), (16, 8192)) for page in (16, 64, 128)),
    ]


def sanitize(batch, heads, kv_heads, queries, keys, head_dim, dtype):
    """Sequences of several lengths, one of them empty, without pages and with; fp16 in place of fp32."""
    dtype = dtype if dtype.itemsize == 2 else torch.float16
    page = 16
    q, k, v = _tensors(batch, heads, kv_heads, queries, -(-keys // page) * page, head_dim, dtype)
    lengths = torch.tensor([keys * i // batch for i in range(batch)], dtype=torch.int32, device=device())
    attention_decode(q, k[:, :, :keys], v[:, :, :keys])
    attention_decode(q, k, v, lengths)
    q, k, v, table = _in_pages(q, k, v, page)
    attention_decode(q, k, v, lengths, None, table)


def counter_calls() -> list[Call]:
    return [launch_of(_decode(1, 32, 8, 32768), name) for name in ("bytes-first", "eager ops")]
