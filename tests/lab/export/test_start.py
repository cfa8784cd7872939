"""Commands that use a trained run start without torch's compiler, whose import takes as long as torch's own."""

import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

from tests.support.runs import train, write_digits

COMMANDS = """
predict {run} {image}
evaluate {run} --draws 1 --images 8 --json
certify {run} --images 4 --json
export {run}
"""
RUN = """
import json, sys
from invaug.cli import main
loaded = {}
for words in json.load(sys.stdin):
    sys.argv = ["invaug", *words]
    try:
        main()
    except SystemExit as stopped:
        loaded[" ".join(words[:2])] = [stopped.code, "torch._dynamo" in sys.modules]
print(json.dumps(loaded))
"""


def test_commands_that_use_a_run_never_load_the_compiler(tmp_path: Path):
    data, image = write_digits(tmp_path, n_train=64, n_test=16), tmp_path / "grey.png"
    Image.new("L", (28, 28)).save(image)
    for model in ("resnet-8", "cnn"):
        train(data, tmp_path / model, model=model, epochs=1, n_levels=2)
    words = [
        line.format(run=tmp_path / model, image=image).split()
        for model in ("resnet-8", "cnn")
        for line in COMMANDS.split("\n")[1:-1]
    ]
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", RUN], input=json.dumps(words), capture_output=True, text=True, timeout=300, check=True
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == {" ".join(line[:2]): [0, False] for line in words}
