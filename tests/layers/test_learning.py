"""The README's model validates as well as it trains, by Keras' `fit`."""

import pathlib
import re

import pytest

pytestmark = pytest.mark.every_lane


def test_the_cells_of_the_readme_print_what_it_says(capsys):
    pytest.importorskip("sklearn", reason="needs the extra `data`")
    page = pathlib.Path(__file__).parents[2] / "README.md"
    text = page.read_text(encoding="utf-8")
    # Without what a comment excuses.
    fence = r"(?ms)(?<!-->\n)^```python\n(.*?)^```$"
    namespace = {}
    for block in re.findall(fence, text):
        exec(block, namespace)
    history = namespace["history"].history
    training, validation = history["accuracy"], history["val_accuracy"]
    for epoch in range(2, len(training)):
        assert validation[epoch] > training[epoch] - 0.2, history
    assert validation[-1] > 0.85, history
    line = r"(?m)^validation accuracy: (\d+\.\d)%$"
    printed = re.search(line, capsys.readouterr().out)
    final = 100 * validation[-1]
    assert float(printed[1]) == pytest.approx(final, abs=0.06)
    # Another processor rounds otherwise, and ends elsewhere.
    low, high = re.search(r"reached ([\d.]+) to ([\d.]+)%", text).groups()
    assert float(low) - 4 < final < float(high) + 4
