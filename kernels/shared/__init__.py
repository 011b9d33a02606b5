"""What several families share; import from the files.

rows.py        how kernels over rows are launched: tables of paths, plans, sums of partial sums
clusters.py    wide rows on Hopper: shared by the CTAs of a cluster, which exchange sums; Gluon
tiles.py       how elementwise kernels are tiled and launched
arguments.py   checks of arguments
metadata.py    host work done once per shapes, strides and dtypes: checks, paths, tiles
operator.py    how the sizes of an operator are called, for `portrait`
device.py      the properties of a GPU that plans depend on
tolerances.py  how far a result may be from an fp64 reference, by dtype
"""
