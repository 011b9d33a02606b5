"""What everything else in the course is measured with.

Running a kernel
    backend.py      compiled on a GPU or interpreted, chosen per launch
    interpreter/    Triton's interpreter with the types, NaNs and memory checks of a GPU
    gluon.py        Gluon as kernels import it
    launcher.py     launches that cost the host less
    launches.py     records the launches of a function and plays them again with other inputs
    operations.py   the torch operations that a function runs
    mbarriers.py    a model of mbarriers: warps with roles that wait and arrive, deadlocks and data races
    ranks.py        one function on several ranks of torch.distributed

Counting and predicting
    meter.py        requested bytes per tensor, counted while a kernel runs in the interpreter
    trace.py        every access of a call, in order
    sectors.py      sectors and bank conflicts of a warp's access
    cache.py        a model of L2: DRAM bytes without a GPU
    traffic.py      bytes, FLOPs and launches of a piece of work, and the lower bound on its time
    ops.py          the traffic of textbook operations
    inductor.py     which ops torch.compile would fuse
    occupancy.py    the programs that one SM holds at once

Compiling, timing, records
    compiler.py     Triton's compiler without a GPU
    compiled.py     registers, spills, PTX and SASS of a kernel, for any architecture
    timing.py       times on a GPU, eager and in a CUDA graph
    gpus.py         datasheets of GPUs and of the links between them
    results.py      the figures recorded under bench/results/
    kernel_hash.py  the hash that tells whether a record is older than its kernel

Notebooks
    start.py        what the first cell of every notebook does
    notebooks.py    the form of a stored notebook; `make lessons`
    release.py      exercises/ from solutions/
    contents.py     README's table of lessons
    work.py         the learner's copies in work/
    diary.py        points and guesses so far, in work/progress.json
    progress.py     how far a learner is, from the diary and the notebooks: a page
    files.py        files written whole or not at all, tables that people wrote
"""
