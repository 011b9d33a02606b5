"""Still pictures, drawn by panels and by lessons from the figures that they hand in.

course_map.py lesson 00: the lessons, their minutes, and what needs what
start.py      lesson 00: the tiles of a copy, a tensor beside its memory
roofline.py   lesson 01: the memory hierarchy, a weight shared by tokens, host and GPU over time
execution.py  lesson 02: a launch from the grid down to sectors, and the latency of a load
tiling.py     lesson 03: the reads of a naive matmul, a software pipeline, waves, a tile in wgmma instructions
hopper.py     lesson 03b: TMA, a barrier's phases, who waits for whom, a recorded trace
hopper_parts.py  lessons 03b, 08b: slots in shared memory, warps with roles, what the compiler writes, a shared dq
fusion.py     lesson 04: a round trip, and the kernels of a layer over time
norms.py      lesson 05b: rows, programs and partial sums of a backward
attention.py  the tensors of attention, what streams past a program, and query heads that share a KV head
decode.py     lesson 08d: intensities on a roofline, heads packed into a tile, a KV cache in pages
epilogues.py  lesson 07: an accumulator on its way from the K loop to the store
regimes.py    lesson 10: matmul shapes on a roofline, waves of tiles, sums in many orders, the kernel for each shape
fp8.py        FP8 matmuls: the bits that an accumulator keeps, promotion, the layout of scales
moe.py        a token's way through its experts, and the exchange of rows between ranks
precision.py  the bits of formats, values before and after quantization, how codes and scales lie in memory
peers.py      peers side by side, grouped by shape, on one scale
pictures.py   what all of them draw with (page, box, arrow), and the pictures of no one family
plots.py      bars, lines and points, labeled directly
"""
