from widgets.drawings.start import copy_tiles, where_in_memory


def test_a_copy_says_which_elements_a_program_takes():
    alt = copy_tiles(20_011, 1024, 2).alt
    assert "20,011 elements take 20 programs" in alt and "elements 2,048 to 3,071" in alt
    assert copy_tiles(4096, 1024, 0).png != copy_tiles(4096, 1024, 1).png


def test_memory_asks_and_does_not_tell():
    panel = where_in_memory(3, 4, 2, 1)
    assert panel.png and "x[2, 1]" in panel.alt and "9" not in panel.alt
