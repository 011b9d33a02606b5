"""What panels are built from.

panel.py           the builder of every panel: controls, one picture, its text alternative
predict.py         a guess before the answer
source.py          a kernel's source in a notebook
table.py           a table in a notebook
bars.py            the picture of `portrait`: bars in multiples of a minimum
launch_picture.py  the picture of `watch`: tensors as grids of cells, and the line of source
model.py           the operator that belongs to a function, and the sizes of one call
routing.py         the controls that panels about experts share
boxes.py           many boxes of one color, drawn fast
cells.py           grids of elements as pixels, drawn fast
letters.py         words that move, drawn fast
labels.py          words beside points that move
words.py           numbers as prose writes them
"""
