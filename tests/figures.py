"""Invented figures for tests, of the types that are recorded."""

from instruments.results import Case, Counter, Figures, Launches, Machine, Programs, Timed


def timed(us: float, nbytes: int = 1, flops: int = 1, error: float = 1e-8) -> Timed:
    return Timed(
        error=error,
        graph_us=us,
        graph_us_p20=us,
        graph_us_p80=us,
        called_us=us + 10,
        gbps=nbytes / us / 1e3,
        tflops=flops / us / 1e6,
    )


def case(kernel: str, shape: tuple, nbytes: int, flops: int, us: dict, dtype: str = "bf16") -> Case:
    """us: implementation -> microseconds."""
    impl = {name: timed(each, nbytes, flops) for name, each in us.items()}
    return Case(kernel=kernel, shape=shape, dtype=dtype, bytes=nbytes, flops=flops, impl=impl)


def figures(*cases: Case) -> Figures:
    """Figures of an H200 with these cases, a counter and a part of the machine's."""
    ran = {"device": "NVIDIA H200", "driver": "580", "torch": "2.11.0", "triton": "3.6.0", "date": "2026-01-02"}
    return Figures(
        **ran,
        liger="0.8.5",
        copy_gbps=4256,
        matmul_tflops={"bf16": 694},
        launch_us=Launches(triton_empty=8, torch_add=5),
        cases=list(cases),
        counters=[
            Counter(
                kernel="rmsnorm", variant="two_pass", shape=(8, 16), dtype="bf16", dram_read=3, dram_written=2, us=1
            )
        ],
        machine=Machine(**ran, programs=[Programs(programs=1, warps=4, us=1, us_p20=1, us_p80=1, ns_per_program=1000)]),
    )
