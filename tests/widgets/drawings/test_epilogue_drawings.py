from widgets.drawings.epilogues import accumulator_epilogue


def test_the_picture_says_where_the_epilogue_works():
    assert "in registers" in accumulator_epilogue().alt and accumulator_epilogue().png
