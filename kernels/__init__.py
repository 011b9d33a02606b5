"""The real Triton kernels of the course, one file per operator family."""
