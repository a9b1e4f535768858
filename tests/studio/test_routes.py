"""Whatever is asked, the studio answers without breaking; and what it answers is right."""

import io
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from served_studio import HTML, ServedStudio, serve, unpacked

from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.select import WAYS
from dualtemp.studio.suggestions import MOST, _among, ways

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
IDS = st.lists(st.integers(-2, 70) | st.integers(), max_size=4)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "ids": IDS | JSON,
        "label": st.text(max_size=5) | st.none() | JSON,
        "tag": st.text(max_size=5),
        "remove": st.booleans(),
        "way": st.sampled_from(["uncertain", "diverse", "typical", "hardest", "x"]),
        "count": st.integers(-1, 600),
        "most": st.integers(-1, 6000),
        "number": st.integers(-1, 3),
        "threshold": st.floats(),
        "tau_alpha": st.floats(),
        "tau_beta": st.floats(),
        "run": st.text(max_size=9) | st.just("../../etc"),
        "clusters": st.integers(-1, 600) | st.none(),
    },
)
# Those that start something long or write folders are asked with nonsense alone, below.
POSTS = [
    "/api/items",
    "/api/similar",
    "/api/space",
    "/api/jobs/stop",
    "/api/label",
    "/api/tag",
    "/api/undo",
    "/api/suggest",
    "/api/temperatures",
    "/api/runs/stop",
    "/api/runs/resume",
    "/api/runs/see",
]
GETS = [
    "/api/state",
    "/api/points",
    "/api/columns/label",
    "/api/columns/class",
    "/api/columns/{x}",
    "/api/thumbs",
    "/api/images/{x}",
    "/api/search",
    "/api/duplicates/found",
    "/api/doubts/found",
    "/api/runs",
    "/api/runs/history",
    "/api/runs/page",
    "/{x}",
]
SLOW = ["/api/duplicates", "/api/doubts", "/api/cluster", "/api/export/folders", "/api/train", "/api/weigh"]


@settings(max_examples=80)
@given(path=st.sampled_from(POSTS), body=NEARLY | JSON)
def test_no_body_breaks_the_studio(shared_studio: ServedStudio, path: str, body: Any) -> None:
    answer = shared_studio.ask(path, json.dumps(body).encode())
    assert answer.code < 500, answer.body
    if answer.code != 200:
        assert "\n" not in answer.json()["error"]


@settings(max_examples=25)
@given(path=st.sampled_from(POSTS + SLOW + ["/api/drop"]), body=st.binary(max_size=60))
def test_no_bytes_break_the_studio(shared_studio: ServedStudio, path: str, body: bytes) -> None:
    if path in SLOW:
        body = b'{"unknown": 1, ' + body  # never valid
    assert shared_studio.ask(path, body).code < 500


@settings(max_examples=80)
@given(
    path=st.sampled_from(GETS),
    word=st.text(max_size=12) | st.sampled_from(["../state", "..%2f", "0", "59", "60", "-1", "9" * 30, "%00", "file0"]),
    query=st.dictionaries(
        st.sampled_from(["ids", "side", "space", "layout", "q", "run"]),
        st.text(max_size=9) | st.sampled_from(["0", "48", "96", "1,2", "0,,", "neighbors", "9" * 20, "²", "../x"]),
        max_size=3,
    ),
)
def test_no_address_breaks_the_studio(shared_studio: ServedStudio, path: str, word: str, query: dict[str, str]) -> None:
    address = path.replace("{x}", quote(word, safe="%"))
    words = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    answer = shared_studio.ask(f"{address}?{words}")
    assert answer.code < 500, answer.body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH"])
def test_other_methods_are_refused(shared_studio: ServedStudio, method: str) -> None:
    assert shared_studio.ask("/api/label", {}, method).code in (405, 501)


def test_the_state_tells_what_there_is(studio: ServedStudio) -> None:
    state = studio.ask("/api/state").json()
    assert state["count"] == 60
    assert state["pictures"]
    assert state["columns"][0]["id"] == "label"
    names = [item["name"] for item in studio.ask("/api/items", {"ids": list(range(60))}).json()["items"]]
    assert HTML in names
    assert names == sorted(names)


def test_points_are_those_of_the_space(studio: ServedStudio) -> None:
    head, places = unpacked(studio.ask("/api/points?layout=components").body, "<f4")
    assert head["count"] == 60
    np.testing.assert_array_equal(places.reshape(60, 2), studio.workspace.space.places["components"])


def test_more_like_these_are_the_nearest_by_cosine(studio: ServedStudio, embeddings: Path) -> None:
    found = studio.ask("/api/similar", {"ids": [4, 7], "most": 10}).json()
    features = np.concatenate([rows.features for rows in EmbeddingFile(embeddings).rows()]).astype(np.float64)
    z = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = (z[4] + z[7]) / 2
    cosines = z @ mean / np.linalg.norm(mean)
    assert found["ids"] == np.argsort(-cosines, kind="stable")[:10].tolist()
    np.testing.assert_allclose(found["cosines"], np.sort(cosines)[::-1][:10], atol=2e-5)
    assert sorted(studio.ask("/api/similar", {"ids": [4], "most": 100_000}).json()["ids"]) == list(range(60))


def test_text_is_searched_in_names_labels_and_tags(studio: ServedStudio) -> None:
    def found(text: str) -> list[int]:
        head, numbers = unpacked(studio.ask(f"/api/search?q={quote(text)}").body, "<i4")
        return numbers.tolist()[: head["count"]]

    names = studio.workspace.shown.images.names
    assert found("COPY") == [names.index("copy.png")]
    assert found("onerror=alert") == [names.index(HTML)]
    studio.ask("/api/label", {"ids": [3, 8], "label": "Zebra crossing"})
    studio.ask("/api/tag", {"ids": [9], "tag": "zebra-like"})
    assert found("zebra") == [3, 8, 9]
    assert found("crossing zebra") == [3, 8]
    assert found("nothing like it") == []
    assert found("") == []


def test_thumbnails_come_as_a_sheet_that_shows_the_images(studio: ServedStudio, drawn_images: Path) -> None:
    answer = studio.ask("/api/thumbs?side=48&ids=1,20,3,4,5,6,7,8,9")
    assert answer.headers["content-type"] == "image/jpeg"
    sheet = Image.open(io.BytesIO(answer.body))
    assert sheet.size == (8 * 48, 2 * 48)
    with Image.open(drawn_images / studio.workspace.shown.images.names[20]) as image:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        expected = np.asarray(image.convert("RGB").crop((left, top, left + side, top + side)).resize((48, 48)), float)
    shown = np.asarray(sheet.crop((48, 0, 96, 48)), float)
    assert np.abs(shown - expected).mean() < 12
    assert studio.ask("/api/thumbs?side=50&ids=1").code == 400
    assert studio.ask("/api/thumbs?side=48&ids=60").code == 400
    assert studio.ask("/api/images/60").code == 400
    large = Image.open(io.BytesIO(studio.ask("/api/images/20").body))
    assert max(large.size) >= 320  # a small one is enlarged


def test_a_dropped_picture_finds_itself_and_broken_ones_are_refused(
    photos_run: Path, photos: Path, tmp_path: Path
) -> None:
    with serve(photos_run, tmp_path) as studio:
        names = studio.workspace.shown.images.names
        for name in ("train/dog/101.jpg", "test/cat/200.png"):
            answer = studio.ask("/api/drop", (photos / name).read_bytes()).json()
            assert names[answer["ids"][0]] == name
            assert answer["cosines"][0] == pytest.approx(1, abs=1e-4)
        for content in (b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0", (photos / "train/dog/101.jpg").read_bytes()[:99]):
            answer = studio.ask("/api/drop", content)
            assert answer.code == 400
            assert "cannot be read" in answer.json()["error"]
        found = studio.ask("/api/temperatures", {"ids": [0, 1, 2, 3], "tau_alpha": 0.1, "tau_beta": 0.1}).json()
        assert sorted(found["anchors"]) == [0, 1, 2, 3]
        assert sum(found["share"]) == pytest.approx(1, abs=1e-5)
        assert sum(found["carried"]) == pytest.approx(1, abs=1e-4)
        flat = studio.ask("/api/temperatures", {"ids": [0, 1, 2, 3], "tau_alpha": 0.1, "tau_beta": 1000.0}).json()
        assert flat["effective_anchors"] == pytest.approx(4, abs=1e-3)
        assert studio.finish_job(studio.ask("/api/weigh", {"tau_beta": 0.1}))["state"] == "done"
        head, W = unpacked(studio.ask("/api/columns/W").body, "<f4")
        assert head["kind"] == "number"
        assert ((W[:34] > 0) & (W[:34] < 1)).all()


def test_a_run_that_was_trained_further_is_not_mixed_with_the_map_made_before(
    photos_run: Path, photos: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(photos_run, run)
    with serve(run, tmp_path) as studio:
        picture = (photos / "train/dog/101.jpg").read_bytes()
        assert studio.ask("/api/drop", picture).code == 200
        weights = load_file(run / "backbone.safetensors")
        save_file({name: value * 1.01 for name, value in weights.items()}, run / "backbone.safetensors")
        for path, body in (("/api/drop", picture), ("/api/temperatures", {"ids": [0, 1, 2, 3]})):
            answer = studio.ask(path, body)
            assert answer.code == 400
            assert "see the images by it again" in answer.json()["error"]


def test_without_an_encoder_a_dropped_picture_says_what_to_do(studio: ServedStudio, drawn_images: Path) -> None:
    answer = studio.ask("/api/drop", (drawn_images / "copy.png").read_bytes())
    assert answer.code == 400
    assert "--encoder" in answer.json()["error"]


def test_suggestions_are_images_without_a_label_in_every_way_of_select(studio: ServedStudio) -> None:
    assert set(ways()) == set(WAYS)
    refused = studio.ask("/api/suggest", {"way": "uncertain"})
    assert refused.code == 400
    assert "diverse" in refused.json()["error"]
    studio.ask("/api/label", {"ids": [0, 3, 6], "label": "blue"})
    studio.ask("/api/label", {"ids": [1, 4, 7], "label": "green"})
    for way in ("diverse", "typical", "uncertain", "random"):
        found = studio.ask("/api/suggest", {"way": way, "count": 5}).json()["ids"]
        assert len(set(found)) == 5, way
        assert not {0, 3, 6, 1, 4, 7} & set(found), way
    assert "computes it" in studio.ask("/api/suggest", {"way": "hardest"}).json()["error"]


def test_suggestions_among_many_images_know_every_class() -> None:
    labels = np.full(80_000, -1)
    labels[:60_000] = np.arange(60_000) // 6_000  # folders are in the order of names, so numbers follow classes
    labels[79_999] = 10
    shown = _among(labels)
    assert set(labels[shown]) == {-1, *range(11)}
    assert len(shown) <= 2 * MOST + 12
    counts = np.bincount(labels[shown][labels[shown] >= 0])
    assert counts[:10].min() > 0.9 * counts.max()


def test_predictions_follow_the_labels(studio: ServedStudio) -> None:
    """Features are in three groups by number modulo three: after labels of some, the probe knows the others."""
    before = studio.workspace.probe.version
    studio.ask("/api/label", {"ids": [0, 3, 6], "label": "first"})
    studio.ask("/api/label", {"ids": list(range(9, 60, 3)), "label": "first"})
    studio.until(
        lambda: (
            (found := studio.workspace.probe.predictions) is not None
            and studio.workspace.probe.version > before
            and "first" in found.classes
            and "blue" not in found.classes
        )
    )
    items = studio.ask("/api/items", {"ids": list(range(60))}).json()["items"]
    assert {item["prediction"] for item in items[0::3]} == {"first"}
    assert {item["prediction"] for item in items[1::3]} == {"green"}
    head, values = unpacked(studio.ask("/api/columns/uncertainty").body, "<f4")
    assert head["kind"] == "number"
    assert ((values[:60] >= 0) & (values[:60] < 0.5)).all()
