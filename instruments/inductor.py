"""What PyTorch's compiler makes of a function, without compiling it: which ops share a kernel, what a forward keeps.

It goes by way of private names of PyTorch, tried on 2.11 and 2.13, which may move: what cannot be asked is said in
one sentence, and no exception reaches a lesson.
"""

from dataclasses import dataclass, field

import torch

_WORTH_A_NAME = ("bmm", "mm", "exp", "softmax", "tanh")


@dataclass(frozen=True)
class Answer:
    """ops: how many the traced graph has. groups: the names in each kernel or library call. problem: why not, or ''."""

    ops: int = 0
    groups: list = field(default_factory=list)
    problem: str = ""

    def __str__(self):
        if self.problem:
            return self.problem
        return f"{self.ops:2} ops -> {len(self.groups)}: " + "; ".join(self.groups)


def _ask(function, *args) -> Answer:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor import config
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    answers = []

    def schedule(graph, inputs):
        order = [node for node in graph.graph.nodes if node.op == "call_function"]
        lowering = GraphLowering(graph, example_inputs=inputs)
        with config.patch({"cpp.simdlen": 1}), V.set_graph_handler(lowering), V.set_debug_handler(DebugContext()):
            lowering.run(*inputs)
            lowering.codegen()  # schedules, then writes code that nothing compiles
        groups = []
        for node in lowering.scheduler.nodes:
            ops = set().union(*(part.node.origins for part in node.get_nodes() if part.node is not None))
            names = dict.fromkeys(str(op.target).split(".")[1].strip("_") for op in order if op in ops)
            if names:
                groups.append(" ".join(names) + (", a library's" if "Extern" in type(node).__name__ else ""))
        answers.append(Answer(len(order), groups))
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    torch.compile(function, backend=aot_autograd(fw_compiler=schedule, decompositions=select_decomp_table()))(*args)
    return answers[0]


def groups(function, *args) -> Answer:
    """The groups into which Inductor's scheduler puts the ops of function(*args): one kernel or library call each.

    The names in a group are the graph's ops in order, each once, those of an earlier group that it computes again
    included.
    """
    try:
        return _ask(function, *args)
    except Exception as problem:
        return Answer(problem=f"This PyTorch does not let its compiler be asked ({type(problem).__name__}).")


def saved_for_backward(function, *args, partition: str) -> Answer:
    """The tensors of the first argument's shape that a forward hands to its backward, one group each.

    partition: a function of torch._functorch.partitioners, such as default_partition.
    """
    saved, count = [], []

    def look(graph, inputs):
        results = graph.graph.find_nodes(op="output")[0].args[0][1:]  # less the function's own
        saved.extend(str(node) for node in results if node.meta["val"].shape == args[0].shape)
        count.append(sum(node.op == "call_function" for node in graph.graph.nodes))
        return graph

    try:
        from torch._functorch import partitioners
        from torch._functorch.aot_autograd import aot_function

        aot_function(
            function,
            fw_compiler=look,
            bw_compiler=lambda graph, inputs: graph,
            partition_fn=getattr(partitioners, partition),
        )(*(x.detach().clone().requires_grad_() for x in args))
        return Answer(count[0], saved)
    except Exception as problem:
        return Answer(problem=f"This PyTorch does not let its partitioner be asked ({type(problem).__name__}).")


def after_patterns(function, *args) -> Answer:
    """The products, exponentials and attention that stand in function(*args) once Inductor has put library calls in
    place of the patterns it knows, in order; ops: how many the graph has then."""
    answers = []

    def look(graph, inputs, **options):
        calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        ops = [getattr(call, "overloadpacket", call).__name__.strip("_") for call in calls]
        answers.append(Answer(len(ops), [name for name in ops if name in _WORTH_A_NAME or "attention" in name]))

        def run(*inputs):
            return graph(*(inputs[0] if len(inputs) == 1 and isinstance(inputs[0], list) else inputs))

        run._boxed_call = True
        return run

    try:
        from torch._inductor.compile_fx import compile_fx

        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(function, backend=lambda graph, inputs: compile_fx(graph, inputs, inner_compile=look))(*args)
        return answers[0]
    except Exception as problem:
        return Answer(problem=f"This PyTorch does not let its compiler be asked ({type(problem).__name__}).")
