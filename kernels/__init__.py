"""The course's Triton kernels, a package per family of operators.

elementwise     copy, add, bias + GELU, dropout, SwiGLU
reductions      row sums
norms           RMSNorm and LayerNorm, forward and backward
softmax         softmax, online softmax, causal softmax
matmul          matmul, from one dot product per program to a persistent kernel
linear          linear layers with an epilogue: bias, activation, SwiGLU, QKV, RMSNorm
embedding       rows of a table by index, and bags of rows
sampling        the next token: temperature, top-k, top-p
optimizers      AdamW, for one parameter and for many in one launch
losses          cross-entropy, of logits and of a linear layer
attention       FlashAttention forward and backward, decode, Hopper
quantization    formats, scales, quantize and dequantize, fused epilogues
low_precision   FP8, MX and weight-only matmuls
grouped_matmul  one matmul per group of rows
decoder         one layer of Llama 3 8B, unfused and with fused kernels
moe             router, permutation, experts, expert parallelism
shared          rows, tiles, checks of arguments, properties of the GPU, tolerances

Every file has one order: what it computes and where the algorithm comes from, the PyTorch reference, the kernels, the
public function, the traffic model.
"""
