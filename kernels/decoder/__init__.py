"""One layer of a decoder model, as it is written in practice and with its memory-bound ops fused.

layer.py   the layer of Llama 3 8B: its weights, both ways to run it, and what each of its ops moves
"""

from kernels.decoder.layer import (
    LLAMA_3_8B,
    LayerWeights,
    Model,
    decoder_layer,
    decoder_layer_reference,
    fused_ops,
    launch_order,
    layer_ops,
    matmul_ops,
)
