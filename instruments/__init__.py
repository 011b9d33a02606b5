"""What everything else in the course is measured with: backends, GPUs, traffic, meter, compiler, clock."""
