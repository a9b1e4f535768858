"""Recipes from outside the package: YAML files and plugins; a run records their content."""

import shutil
from pathlib import Path

import pytest
import yaml
from command_processes import Commands

from dualtemp.config import settings, to_yaml
from dualtemp.data import RECIPES, Augmentation, Blur, Jitter, Recipe, register_recipe
from dualtemp.data.augment.recipes import content_of, recipe_from, recipe_named, recipe_text
from dualtemp.errors import UserError

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PARTS = ("--plugin", EXAMPLES / "my_parts.py")
TINY = ("--data", "digits", "--batch", "64", "--subset", "128", "--epochs", "1", "--no-page")


def test_the_examples_are_short() -> None:
    for name in ("my_recipe.yaml", "my_parts.py"):
        assert len((EXAMPLES / name).read_text().splitlines()) <= 30


def test_a_recipe_in_yaml_is_what_it_says() -> None:
    jitter = Jitter(0.4, 0.4, 0.2, 0.1)
    wanted = Recipe(
        Augmentation(scale=(0.2, 1.0), jitter=jitter, blur=Blur(1.0)),
        Augmentation(scale=(0.2, 1.0), jitter=jitter, blur=Blur(0.1), solarize=0.2),
    )
    assert recipe_named(str(EXAMPLES / "my_recipe.yaml")) == wanted


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_recipe_survives_the_way_through_its_content(name: str) -> None:
    made = RECIPES[name]
    assert recipe_from(yaml.safe_load(yaml.safe_dump(content_of(made))), "it") == made
    assert recipe_text(content_of(made)) == name, "the content counts, however it is given"


def test_what_a_recipe_does_not_name_does_not_happen() -> None:
    nothing = Augmentation(flip=0.0, jitter=None, grayscale=0.0)
    assert recipe_from({}, "it") == Recipe(nothing, nothing)
    assert recipe_from({"second": {"blur": {}}}, "it").second.blur == Blur()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("solarise: 0.2", "nothing is called 'solarise': did you mean 'solarize'?"),
        ("first: {flips: 1}", "first: nothing is called 'flips': did you mean 'flip'?"),
        ("jitter: {hues: 0.1}", "jitter: nothing is called 'hues': did you mean 'hue'?"),
        ("jitter: {hue: 0.6}", "jitter, hue must be a number from 0 to 0.5, got 0.6"),
        ("crop: {scale: 0.2}", "crop, scale must be two numbers, [least, most], got 0.2"),
        ("crop: {scale: [0.5, 0.2]}", "the smaller one first"),
        ("crop: {scale: [0.5, 2]}", "must be a number from 0 to 1, got 2"),
        ("flip: often", "flip must be a number from 0 to 1, got 'often'"),
        ("- flip", "by name expected"),
        ("flip: [", "not YAML"),
    ],
)
def test_a_mistake_in_a_recipe_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        settings({"data": "digits", "recipe": str(path)})
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_recipe_of_a_plugin_is_checked_too() -> None:
    with pytest.raises(UserError, match="the recipe 'wrong', flip must be a number from 0 to 1, got 2"):
        register_recipe("wrong", Augmentation(flip=2))
    with pytest.raises(UserError, match="two recipes are called 'paper'"):
        register_recipe("paper", Augmentation())


def test_settings_hold_the_content_and_neither_name_nor_path(tmp_path: Path) -> None:
    register_recipe("mine", Augmentation(flip=0.25))
    copies = [tmp_path / name for name in ("a.yaml", "b.yml")]
    for path in copies:
        path.write_text(yaml.safe_dump(content_of(RECIPES["mine"])))
    found = {settings({"data": "digits", "recipe": str(each)}).recipe for each in (*copies, "mine")}
    (text,) = found
    assert recipe_named(text) == RECIPES["mine"]
    written = yaml.safe_load(to_yaml(settings({"data": "digits", "recipe": text})))
    assert written["recipe"] == content_of(RECIPES["mine"])
    assert settings({"data": "digits", "recipe": written["recipe"]}).recipe == text


@pytest.mark.slow
def test_a_run_needs_its_yaml_no_more_but_the_plugin_of_its_backbone(commands: Commands, tmp_path: Path) -> None:
    run, mine = tmp_path / "run", Path(shutil.copy(EXAMPLES / "my_recipe.yaml", tmp_path))
    ended = commands.run("train", *TINY, *PARTS, "--recipe", mine, "--backbone", "tiny", "--out", run)
    assert ended.code == 0, ended.err
    mine.unlink()
    assert yaml.safe_load((run / "config.yaml").read_text())["recipe"]["second"]["solarize"] == 0.2
    refused = commands.run("resume", run, "--epochs", "2")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "backbone 'tiny' is unknown" in refused.err
    assert "--plugin" in refused.err
    assert commands.run("resume", run, "--epochs", "2", "--no-page", *PARTS).code == 0
    assert commands.run("evaluate", run, "--only", "knn", *PARTS).code == 0
    refused = commands.run("export", run, *PARTS)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "tiny comes from a plugin, so that no model.py can build it; take onnx or torch-export" in refused.err
    assert commands.run("export", run, "--format", "torch-export", *PARTS).code == 0
    assert (run / "export" / "model.pt2").is_file()


@pytest.mark.slow
def test_a_recipe_of_a_plugin_can_be_looked_at(commands: Commands, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    ended = commands.run("data", "digits", "--show", "--recipe", "gentle", "--out", sheet, *PARTS)
    assert ended.code == 0, ended.err
    assert sheet.is_file()


@pytest.mark.parametrize("text", ["{flip: 0.5}", '{"flip": 0.5', '{"flip": 0.5}}'])
def test_a_recipe_that_is_no_json_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"^recipe: .* is not JSON \(.*\); give such as '\{\"flip\": 0\.5\}', or FILE"):
        recipe_named(text)
