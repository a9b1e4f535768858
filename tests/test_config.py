import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.config import complete, from_yaml, overridden, setting_names, settings, to_yaml
from dualtemp.errors import UserError
from dualtemp.frameworks import framework_named, frameworks


@pytest.mark.parametrize("method", frameworks())
def test_a_complete_config_reruns_as_it_is(method: str, tmp_path: Path) -> None:
    chosen = complete(settings({"data": "digits", "method": method}), image_size=8)
    (tmp_path / "config.yaml").write_text(to_yaml(chosen))
    assert settings(from_yaml(tmp_path / "config.yaml")) == chosen
    assert chosen.image_size == 8
    assert chosen.options == framework_named(method).Settings()


def test_the_defaults_are_the_papers_recipe() -> None:
    chosen = complete(settings({"data": "cifar100"}), image_size=32)
    assert (chosen.method, chosen.options.tau_alpha, chosen.options.tau_beta) == ("simco", 0.1, 1.0)
    assert (chosen.backbone, chosen.epochs, chosen.batch, chosen.lr, chosen.warmup_epochs) == (
        "resnet18",
        200,
        256,
        0.03,
        10,
    )
    assert (chosen.optimizer, chosen.momentum, chosen.weight_decay, chosen.probe_lr) == ("sgd", 0.9, 5e-4, 0.3)
    moco = complete(settings({"data": "cifar100", "method": "moco"}), image_size=32)
    assert (moco.options.dictionary_size, moco.options.key_momentum) == (65536, 0.99)


def test_mocos_scalar_temperature_follows_and_simcos_does_not() -> None:
    for method, expected in (("moco", 0.05), ("simco", 1.0), ("simmoco", 1.0)):
        chosen = complete(settings({"data": "x", "method": method, "tau_alpha": 0.05}), 8)
        temperatures = chosen.framework.temperatures(chosen.options)
        assert temperatures is not None
        assert temperatures.beta == expected


def test_words_of_the_command_line_become_numbers() -> None:
    chosen = settings({"data": "x", "tau_beta": "inf", "epochs": "3", "subset": "0.5", "symmetric": None})
    assert (chosen.options.tau_beta, chosen.epochs, chosen.subset) == (math.inf, 3, 0.5)
    assert settings({"data": "x", "subset": "100"}).subset == 100
    assert settings({"data": Path("/a/b"), "init": Path("c")}) == settings({"data": "/a/b", "init": "c"})
    whole = settings({"data": "x", "subset": "1.0"}).subset
    assert isinstance(whole, float), "the whole set, not one image"
    assert settings({"data": "x", "weight": "per_image", "tau_lr": 1e-7}).options.tau_lr == 1e-7, "no temperature"
    assert settings({"data": "x", "method": "moco", "tau_beta": "tied"}).options.tau_beta == "tied"
    assert yaml.safe_load(to_yaml(chosen))["tau_beta"] == math.inf


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "data is needed: give --data"),
        ({"data": "x", "metod": "simco"}, "no setting is called 'metod': did you mean 'method'?"),
        ({"data": "x", "method": "simcoo"}, "no method is called 'simcoo': did you mean 'simco'?"),
        ({"data": "x", "dictionary_size": 10}, "dictionary_size does not apply to simco: it is a setting of moco"),
        ({"data": "x", "method": "byol", "tau_beta": 1.0}, "tau_beta does not apply to byol"),
        ({"data": "x", "epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        (
            {"data": "x", "epochs": 10**12},
            "epochs must be a whole number of at least 1 and of at most a thousand million",
        ),
        ({"data": "x", "method": "moco", "dictionary_size": 10**30}, "and of at most a thousand million"),
        ({"data": "x", "epochs": "many"}, "epochs must be a whole number of at least 1"),
        ({"data": "x", "lr": True}, "lr must be a number above 0, got True"),  # `lr: yes` in YAML
        ({"data": "x", "tau_beta": True}, "tau_beta must be a number above 0, inf, or 'tied', got True"),
        ({"data": "x", "knn": True}, "knn must be a whole number of at least 1, or 'auto', got True"),
        ({"data": "x", "tau_alpha": -1}, "tau_alpha must be a number above 0, got -1"),
        ({"data": "x", "tau_alpha": math.inf}, "tau_alpha must be finite"),
        ({"data": "x", "tau_beta": 0.0}, "tau_beta must be a number above 0, inf, or 'tied'"),
        ({"data": "x", "tau_beta": math.nan}, "tau_beta must be a number above 0, inf, or 'tied'"),
        ({"data": "x", "batch": 1}, "batch must be a whole number of at least 2, got 1"),
        ({"data": "x", "chunk": 1}, "chunk must be a whole number of at least 2, got 1"),
        ({"data": "x", "seed": 10**20}, "seed must be a whole number of at least 0 and below 2^63"),
        (
            {"data": "x", "subset": 0},
            "subset must be a number of images, 1 or more, or a fraction above 0 and at most 1",
        ),
        ({"data": "x", "batch": "1e9"}, "batch must be a whole number of at least 2, got '1e9'"),
        (
            {"data": "x", "batch": 10**23},
            "batch must be a whole number of at least 2 and of at most a",
        ),
        ({"data": "x", "method": "vicreg", "projector_width": 10**23}, "and of at most 1000000, got 1000"),
        ({"data": "x", "tau_alpha": 1e39}, "tau_alpha must be from 1e-06 to 1e+30, got 1e+39"),
        ({"data": "x", "tau_beta": 1e-45}, "tau_beta must be from 1e-06 to inf, got 1e-45"),
        ({"data": "x", "lr": math.nan}, "lr must be a number above 0 and of at most 1e+38, got nan"),
        ({"data": "x", "weight_decay": math.inf}, "weight_decay must be a number of at least 0 and of at most 1e+38"),
        ({"data": "x", "weight_decay": 1e300}, "weight_decay must be a number of at least 0 and of at most 1e+38"),
        ({"data": "x", "weight_decay": -1}, "weight_decay must be a number of at least 0, got -1"),
        ({"data": "x", "clip_gradient": math.inf}, "clip_gradient must be finite, got inf"),
        (
            {"data": "x", "warmup_epochs": 1e308},
            "warmup_epochs must be a number of at least 0 and of at most a",
        ),
        (
            {"data": "x", "temperature_schedule": "cosine", "tau_alpha_end": 1.0, "temperature_period": 1e308},
            "temperature_period must be a number above 0 and of at most a thousand million",
        ),
        ({"data": "x", "momentum": 1}, "momentum must be a number of at least 0 and below 1, got 1"),
        ({"data": "x", "labels": "perhaps"}, "labels must be true or false, got 'perhaps'"),
        ({"data": "x", "subset": "half"}, "subset must be a number of images"),
        ({"data": "x", "tau_beta": "hot"}, "tau_beta must be a number above 0, inf, or 'tied', got 'hot'"),
        ({"data": 3}, "data must be a word, got 3"),
        (
            {"data": "x", "subset": 1.5},
            "subset must be a number of images, 1 or more, or a fraction above 0 and at most 1",
        ),
        ({"data": "x", "optimizer": "sdg"}, "no optimizer is called 'sdg': did you mean 'sgd'?"),
        (
            {"data": "x", "method": "moco", "keys": "last", "vector_size": 9},
            "vector_size does not apply to keys 'last'",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(values: dict, said: str) -> None:
    with pytest.raises(UserError) as caught:
        settings(values)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_framework_on_the_command_line_drops_what_the_files_one_had() -> None:
    of_file = complete(settings({"data": "x", "epochs": 7}), 8).model_dump(exclude_none=True)
    moco = settings(overridden(of_file, {"method": "moco", "dictionary_size": 64}))
    assert (moco.method, moco.epochs, moco.options.dictionary_size, moco.get("tau_beta")) == ("moco", 7, 64, None)
    assert settings(overridden(of_file, {"tau_beta": 2.0})).options.tau_beta == 2.0


@given(
    st.dictionaries(
        st.sampled_from([*setting_names(), "nonsense"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers())),
    )
)
def test_any_values_give_settings_or_one_line(values: dict) -> None:
    try:
        said = settings(values).method
    except UserError as error:
        said = str(error)
    assert "\n" not in said.replace("\\n", "")


@pytest.mark.parametrize("text", ["- 1", "a: [", "1: 2", "\x00"])
def test_a_file_that_holds_no_settings_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UserError, match=r"c\.yaml"):
        from_yaml(tmp_path / "c.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        from_yaml(tmp_path / "none.yaml")


def test_the_config_of_a_run_from_before_versions_reruns_what_it_computed(tmp_path: Path) -> None:
    path, chosen = tmp_path / "config.yaml", complete(settings({"data": "digits", "method": "byol"}), 8)
    assert chosen.computation == 2
    path.write_text(to_yaml(chosen))
    assert from_yaml(path)["computation"] == 2
    path.write_text(to_yaml(chosen).replace("computation: 2\n", ""))  # complete, but for what did not exist
    assert from_yaml(path)["computation"] == 1
    path.write_text("data: digits\nmethod: byol\n")  # somebody's own: the newest
    assert complete(settings(from_yaml(path)), 8).computation == 2


def test_a_version_that_is_not_known_is_refused_and_another_framework_has_its_own() -> None:
    with pytest.raises(UserError, match="computation 3 of byol is not known here, 2 is the newest"):
        settings({"data": "digits", "method": "byol", "computation": 3})
    assert "computation" not in overridden({"data": "digits", "method": "byol", "computation": 2}, {"method": "simco"})
