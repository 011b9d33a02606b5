# wrong, exception: never calls the second op
import torch

from instruments.backend import tl, triton


@triton.jit
def reglu_kernel(gate_up_ptr, y_ptr, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        gate_ptrs = gate_up_ptr + row * row_stride + col * col_stride
        gate = tl.load(gate_ptrs, mask=col < cols, other=0.0)
        up = tl.load(gate_ptrs + cols * col_stride, mask=col < cols, other=0.0)
        tl.store(y_ptr + row * cols + col, tl.maximum(gate, 0.0) * up, mask=col < cols)


@triton.jit
def reglu_backward_kernel(dy_ptr, gate_up_ptr, dx_ptr, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        gate_ptrs = gate_up_ptr + row * row_stride + col * col_stride
        gate = tl.load(gate_ptrs, mask=col < cols, other=0.0)
        up = tl.load(gate_ptrs + cols * col_stride, mask=col < cols, other=0.0)
        dy = tl.load(dy_ptr + row * cols + col, mask=col < cols, other=0.0)
        tl.store(dx_ptr + row * 2 * cols + col, tl.where(gate > 0, dy * up, 0.0), mask=col < cols)
        tl.store(dx_ptr + row * 2 * cols + cols + col, dy * tl.maximum(gate, 0.0), mask=col < cols)


def reglu(gate_up: torch.Tensor) -> torch.Tensor:
    """[rows, 2 * cols] of any strides -> [rows, cols], contiguous."""
    rows, cols = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty(rows, cols, dtype=gate_up.dtype, device=gate_up.device)
    reglu_kernel[(rows,)](gate_up, y, cols, *gate_up.stride(), BLOCK=256)
    return y


def reglu_backward(dy: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    """The gradient of gate_up, [rows, 2 * cols], contiguous."""
    rows, cols = gate_up.shape[0], gate_up.shape[1] // 2
    dx = torch.empty(gate_up.shape, dtype=gate_up.dtype, device=gate_up.device)
    reglu_backward_kernel[(rows,)](dy.contiguous(), gate_up, dx, cols, *gate_up.stride(), BLOCK=256)
    return dx


def compiled(model):
    """`model` in one graph, forward and backward; a graph break is an error."""
    torch.compiler.reset()  # or old versions of your op would stay in the compiler's cache
    return torch.compile(model, fullgraph=True, backend="aot_eager")


class Broken:
    """How somebody registered them. Eager calls are right, and yet three lines are wrong."""

    def fake(gate_up):
        return torch.empty_like(gate_up.chunk(2, dim=1)[0])

    def fake_backward(dy, gate_up):
        return torch.empty(gate_up.shape, device=gate_up.device)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def gradients(ctx, dy):
        return reglu_backward(dy, *ctx.saved_tensors)

    op = torch.library.custom_op("exercise_13_broken::reglu", reglu, mutates_args=())
    backward_op = torch.library.custom_op("exercise_13_broken::reglu_backward", reglu_backward, mutates_args=())
    op.register_fake(fake)
    backward_op.register_fake(fake_backward)
    op.register_autograd(gradients, setup_context=save)


def faults(gate_up, dy):
    pairs = ((Broken.fake(gate_up), reglu(gate_up)), (Broken.fake_backward(dy, gate_up), reglu_backward(dy, gate_up)))

    def fault(promised, delivered):
        for name in ("shape", "dtype"):
            if getattr(promised, name) != getattr(delivered, name):
                return name
        return "" if promised.stride() == delivered.stride() else "strides"

    return tuple(fault(*pair) for pair in pairs)


def make_op():
    op = torch.library.custom_op("exercise_13::reglu", reglu, mutates_args=())
    backward = torch.library.custom_op("exercise_13::reglu_backward", reglu_backward, mutates_args=())

    def gradients(ctx, dy):
        gate, up = ctx.saved_tensors[0].chunk(2, dim=1)
        return torch.cat([torch.where(gate > 0, dy * up, 0), dy * gate.relu()], dim=1)

    op.register_fake(lambda gate_up: gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2))
    backward.register_fake(lambda dy, gate_up: gate_up.new_empty(gate_up.shape))
    op.register_autograd(gradients, setup_context=Broken.save)
    return op
