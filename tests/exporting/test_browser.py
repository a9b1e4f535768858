"""`encoder.js` in a real browser, by onnxruntime-web: features and classes are those of the run."""

import functools
import http.server
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_processes import PATIENCE
from PIL import Image

import dualtemp
from dualtemp.encoder.encoder import run_encoder

RUNTIME = "onnxruntime-web@1.22.0"
FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module">
import * as ort from "./ort.wasm.bundle.min.mjs";
import { load, loadClassifier } from "./encoder.js";
const found = [];
try {
  const encode = await load(ort), classify = await loadClassifier(ort);
  for (const name of NAMES) {
    const image = new Image();
    image.src = name;
    await image.decode();
    const { label, best, probability, probabilities } = await classify(image);
    found.push({ features: [...await encode(image)], label, best, probability, probabilities: [...probabilities] });
  }
  window.found = found;
} catch (error) { window.failed = String(error); }
</script>"""


@pytest.fixture(scope="module")
def runtime(request: pytest.FixtureRequest) -> Path:
    """onnxruntime-web's files, fetched once by npm."""
    assert request.config.cache is not None
    folder = Path(request.config.cache.mkdir("onnxruntime-web"))
    if all((folder / name).is_file() for name in FILES):
        return folder
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"no npm, which fetches {RUNTIME}")
    words = [npm, "pack", "--silent", RUNTIME]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot fetch {RUNTIME}: {done.stderr.strip()[-200:]}")
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as archive:
        for name in FILES:
            content = archive.extractfile(f"package/dist/{name}")
            assert content is not None
            (folder / name).write_bytes(content.read())
    packed.unlink()
    return folder


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and where a server gives it out."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    folder = tmp_path / "served"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
def test_a_browser_gives_the_runs_features_and_classes(
    run_copy: Path, tmp_path: Path, served: tuple[Path, str], runtime: Path, browser: Any
) -> None:
    folder, address = served
    dualtemp.evaluate(run_copy, only="probe", quiet=True, device="cpu", workers=0)
    dualtemp.export(run_copy, "onnx-web", folder, classifier="probe")
    side = run_encoder(run_copy, "cpu").views.shorter_side
    draws = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
    (tmp_path / "new").mkdir()
    names = [f"{i}.png" for i in range(len(draws))]
    for name, pixels in zip(names, draws, strict=True):
        Image.fromarray(pixels).save(tmp_path / "new" / name)
        shutil.copy(tmp_path / "new" / name, folder)
    for name in FILES:
        shutil.copy(runtime / name, folder)
    (folder / "index.html").write_text(PAGE.replace("NAMES", repr(names)))
    view, told = browser.new_page(), []
    view.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    view.on("pageerror", lambda error: told.append(str(error)))
    view.goto(f"{address}/index.html")
    view.wait_for_function("window.found || window.failed", timeout=1000 * PATIENCE)
    assert view.evaluate("window.failed ?? null") is None
    assert told == []
    theirs = view.evaluate("window.found")
    view.close()
    ours = dualtemp.predict(run_copy, tmp_path / "new", classifier="probe", device="cpu", workers=0)
    assert ours.predictions is not None
    assert ours.classifier is not None
    np.testing.assert_allclose([each["features"] for each in theirs], ours.features, atol=1e-4)
    np.testing.assert_allclose([each["probabilities"] for each in theirs], ours.predictions.probabilities, atol=1e-3)
    np.testing.assert_allclose([each["probability"] for each in theirs], ours.predictions.confidence, atol=1e-3)
    classes = [*ours.classifier.classes, "none of these"]
    assert [each["label"] for each in theirs] == [classes[label] for label in ours.predictions.label.tolist()]
    assert [each["best"] for each in theirs] == [classes[label] for label in ours.predictions.best.tolist()]
