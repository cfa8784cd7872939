"""A trained model leaves the tool: as a file other programs read, or as answers about images."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from invaug.lab.data import decode
from invaug.lab.errors import UserError, nearest
from invaug.lab.run import atomic
from invaug.lab.run.folder import Predictor, load, read_config
from invaug.lab.terminal import with_progress

BATCH = 64  # files decoded and shown to the model at once
N_TRACED, N_CHECKED = 2, 3  # images; different, so that a batch size frozen into the trace is noticed
TOLERANCE = 1e-4  # a trace may add in another order


@dataclass(frozen=True)
class Card:
    """What a file must say beside the weights to be used: it goes into every format that has room for it."""

    model: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_shape: tuple[int, int, int]

    @classmethod
    def of(cls, run_folder: Path) -> Card:
        """Return the card of a run; mean and std are of pixels in [0, 1]."""
        config, facts = read_config(run_folder)
        return cls(config.model.name, facts.classes, facts.mean, facts.std, facts.image_shape)

    def strings(self) -> dict[str, str]:
        """Return the entries as JSON, since file formats keep strings alone."""
        return {key: json.dumps(value) for key, value in asdict(self).items()}


def export_run(run: Path, to: str, output: Path | None, *, trust_model: bool = False) -> Path:
    """Write the model of a run in a format of FORMATS; return the new file.

    torchscript and onnx take uint8 images and give class scores; safetensors and state-dict hold the network's weights.
    """
    if to not in FORMATS:
        raise UserError(f"unknown format {to}, {nearest(to, FORMATS)}")
    convert, name = FORMATS[to]
    path = output or run / name
    _check_free(path)
    content = convert(load(run, trust_model=trust_model), Card.of(run))
    _check_free(path)  # someone else may have been quicker
    try:
        atomic.write_bytes(path, content)
    except OSError as error:  # it names the file and the reason
        raise UserError(str(error)) from error
    return path


def predict_files(run: Path, images: list[Path], top: int, *, trust_model: bool = False) -> list[dict[str, Any]]:
    """Return, for every image file, its most probable classes, best first."""
    predictor, shape = load(run, trust_model=trust_model), Card.of(run).image_shape
    if shape[0] not in (1, 3):
        raise UserError(f"{run} was trained on images of {shape[0]} channels; image files have 1 or 3")
    with decode.quiet():
        chunks = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
        return [row for chunk in with_progress(chunks, "predicting") for row in _predict(predictor, chunk, shape, top)]


@torch.no_grad()
def _predict(predictor: Predictor, files: list[Path], shape: decode.Shape, top: int) -> list[dict[str, Any]]:
    batch = torch.stack([torch.from_numpy(decode.decode(file, shape).copy()) for file in files])
    found = predictor(batch).softmax(1).topk(min(top, len(predictor.classes)))
    return [
        {
            "file": decode.printable(str(file)),
            "predictions": [
                {"class": predictor.classes[index], "probability": probability}
                for index, probability in zip(indices, probabilities, strict=True)
            ],
        }
        for file, indices, probabilities in zip(files, found.indices.tolist(), found.values.tolist(), strict=True)
    ]


def _check_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists: remove it, or choose another file with --output")
    if not path.parent.is_dir():
        raise UserError(f"folder {path.parent} does not exist: make it, or choose another file with --output")


def _weights(predictor: Predictor) -> dict[str, Tensor]:
    """Return the network's weights, each in memory of its own: formats refuse or repeat what is shared."""
    return {name: tensor.detach().contiguous().clone() for name, tensor in predictor.network.state_dict().items()}


def _safetensors(predictor: Predictor, card: Card) -> bytes:
    return safetensors.torch.save(_weights(predictor), metadata={"format": "pt", **card.strings()})


def _state_dict(predictor: Predictor, _: Card) -> bytes:
    buffer = io.BytesIO()
    torch.save(_weights(predictor), buffer)
    return buffer.getvalue()


def _torchscript(predictor: Predictor, card: Card) -> bytes:
    buffer = io.BytesIO()
    with _exporting(card.model):
        about = {"invaug.json": json.dumps(asdict(card)).encode()}
        torch.jit.save(_traced(predictor, card), buffer, _extra_files=about)
    return _without_sources(buffer)


def _without_sources(saved: io.BytesIO) -> bytes:
    """Return a TorchScript archive without its notes for debuggers: they tell where files lie on this machine."""
    kept = io.BytesIO()
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(kept, "w") as new:
        for member in old.infolist():
            if not member.filename.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(member.filename), old.read(member))
    return kept.getvalue()


def _onnx(predictor: Predictor, card: Card) -> bytes:
    if find_spec("onnx") is None:
        raise UserError("--to onnx needs onnx, which is not installed: pip install onnx")
    import onnx

    buffer = io.BytesIO()
    with _exporting(card.model):
        torch.onnx.export(
            _traced(predictor, card),
            (_images(card, N_TRACED),),
            buffer,  # type: ignore[arg-type]  # the older exporter takes files, the newer wants onnxscript besides onnx
            input_names=["images"],
            output_names=["scores"],
            dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
            dynamo=False,
        )
        model = onnx.load_from_string(buffer.getvalue())
        onnx.helper.set_model_props(model, card.strings())
        onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


@torch.no_grad()
def _traced(predictor: Predictor, card: Card) -> torch.jit.ScriptModule:
    """Return the trace of the model, held against the model on a batch of another size."""
    traced = torch.jit.trace(predictor, (_images(card, N_TRACED),), check_trace=False)
    images = _images(card, N_CHECKED)
    if not torch.allclose(traced(images), predictor(images), rtol=TOLERANCE, atol=TOLERANCE):
        raise RuntimeError("its trace gives other scores than the model itself")
    return traced  # type: ignore[no-any-return]


@contextmanager
def _exporting(model: str) -> Iterator[None]:
    """Silence what torch says of its older exporters and of sizes read as constants; name the model if it fails."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|invaug\.lab\.export")
        for harmless in ("no signature found for", "Constant folding"):  # of a trace; of a slice with steps
            warnings.filterwarnings("ignore", harmless, module=r"torch\.onnx\.")
        try:
            yield
        except Exception as error:  # a model of the user's may do anything
            reason = (str(error) or type(error).__name__).strip().splitlines()[0]
            raise UserError(f"model {model} cannot be exported in this format: {reason}") from error


def _images(card: Card, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, *card.image_shape), dtype=torch.uint8, generator=generator)


FORMATS: dict[str, tuple[Callable[[Predictor, Card], bytes], str]] = {
    "safetensors": (_safetensors, "model.safetensors"),
    "torchscript": (_torchscript, "model.torchscript"),
    "onnx": (_onnx, "model.onnx"),
    "state-dict": (_state_dict, "model.pt"),
}
"""Each format's writer, and the name of its file in the run where none is given."""
