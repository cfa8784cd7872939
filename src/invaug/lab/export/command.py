"""`invaug export`: the model of a run as a file that other programs read."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from invaug.lab.errors import UserError, nearest
from invaug.lab.run import atomic
from invaug.lab.run.folder import Predictor, load, read_config

N_TRACED, N_CHECKED = 2, 3  # images; different, to notice a batch size that is fixed in the trace
TOLERANCE = 1e-4  # a trace may sum in another order


Card = Mapping[str, Any]
"""What a user of the weights must know, stored in every format that has room for it: model, classes, mean and std of
pixels in [0, 1], image_shape."""


def export_run(run: Path, to: str, output: Path | None, *, trust_model: bool = False) -> Path:
    """Write the model of a run in one of FORMATS; return the new file.

    torchscript and onnx map uint8 images to class scores; safetensors and state-dict hold the network's weights.
    """
    if to not in FORMATS:
        raise UserError(f"unknown format {to}, {nearest(to, FORMATS)}")
    convert, name = FORMATS[to]
    path = output or run / name
    config, facts = read_config(run)
    _check_free(path)
    card = {"model": config.model.name, **facts.model_dump(exclude={"name"}, exclude_none=True)}
    content = convert(load(run, trust_model=trust_model), card)
    _check_free(path)  # another process may have been quicker
    try:
        atomic.write_bytes(path, content)
    except OSError as error:  # it names the file and the reason
        raise UserError(str(error)) from error
    return path


def _check_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists: remove it, or choose another file with --output")
    if not path.parent.is_dir():
        raise UserError(f"folder {path.parent} does not exist: create it, or choose another file with --output")


def _as_json(card: Card) -> dict[str, str]:
    """Return the entries as JSON, because the formats store strings only."""
    return {key: json.dumps(value) for key, value in card.items()}


def _weights(predictor: Predictor) -> dict[str, Tensor]:
    """Return the network's weights, each in its own memory: formats refuse or duplicate shared memory."""
    return {name: tensor.detach().contiguous().clone() for name, tensor in predictor.network.state_dict().items()}


def _safetensors(predictor: Predictor, card: Card) -> bytes:
    return safetensors.torch.save(_weights(predictor), metadata={"format": "pt", **_as_json(card)})


def _state_dict(predictor: Predictor, _: Card) -> bytes:
    buffer = io.BytesIO()
    torch.save(_weights(predictor), buffer)
    return buffer.getvalue()


def _torchscript(predictor: Predictor, card: Card) -> bytes:
    buffer = io.BytesIO()
    with _exporting(card["model"]):
        about = {"invaug.json": json.dumps(card).encode()}
        torch.jit.save(_traced(predictor, card), buffer, _extra_files=about)
    return _without_sources(buffer)


def _without_sources(saved: io.BytesIO) -> bytes:
    """Return a TorchScript archive without its debug records, which contain paths of this machine."""
    kept = io.BytesIO()
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(kept, "w") as new:
        for member in old.infolist():
            if not member.filename.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(member.filename), old.read(member))
    return kept.getvalue()


def _onnx(predictor: Predictor, card: Card) -> bytes:
    if find_spec("onnx") is None:
        raise UserError("--to onnx needs onnx, which is not installed: pip install 'invaug[onnx]'")
    import onnx

    buffer = io.BytesIO()
    with _exporting(card["model"]):
        torch.onnx.export(
            _traced(predictor, card),
            (_images(card, N_TRACED),),
            buffer,  # type: ignore[arg-type]  # the older exporter takes files, the newer one also needs onnxscript
            input_names=["images"],
            output_names=["scores"],
            dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
            dynamo=False,
        )
        model = onnx.load_from_string(buffer.getvalue())
        onnx.helper.set_model_props(model, _as_json(card))
        onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


@torch.no_grad()
def _traced(predictor: Predictor, card: Card) -> torch.jit.ScriptModule:
    """Return the trace of the model, checked against the model on a batch of another size."""
    traced = torch.jit.trace(predictor, (_images(card, N_TRACED),), check_trace=False)
    images = _images(card, N_CHECKED)
    if not torch.allclose(traced(images), predictor(images), rtol=TOLERANCE, atol=TOLERANCE):
        raise RuntimeError("its trace does not reproduce the scores of the model")
    return traced  # type: ignore[no-any-return]


@contextmanager
def _exporting(model: str) -> Iterator[None]:
    """Silence torch's warnings about its older exporters and about constant sizes; name the model if it fails."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|invaug\.lab\.export")
        for harmless in ("no signature found for", "Constant folding"):  # of a trace; of a slice with steps
            warnings.filterwarnings("ignore", harmless, module=r"torch\.onnx\.")
        try:
            yield
        except Exception as error:  # a user's own model may do anything
            reason = (str(error) or type(error).__name__).strip().splitlines()[0]
            raise UserError(f"model {model} cannot be exported in this format: {reason}") from error


def _images(card: Card, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, *card["image_shape"]), dtype=torch.uint8, generator=generator)


FORMATS: dict[str, tuple[Callable[[Predictor, Card], bytes], str]] = {
    "safetensors": (_safetensors, "model.safetensors"),
    "torchscript": (_torchscript, "model.torchscript"),
    "onnx": (_onnx, "model.onnx"),
    "state-dict": (_state_dict, "model.pt"),
}
"""Each format's writer, and the default name of its file in the run."""
