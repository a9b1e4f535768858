import subprocess
import sys


def modules_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stdout.split()}


def test_importing_the_package_does_not_import_torch() -> None:
    assert "torch" not in modules_after("import dualtemp; dir(dualtemp); dualtemp.__version__")


def test_the_core_needs_torch_alone() -> None:
    with_torch = modules_after("import torch")
    core = "import dualtemp.losses.hardness, dualtemp.losses, dualtemp.distributed, dualtemp.models.dictionary"
    standard = set(sys.stdlib_module_names)
    assert modules_after(core) - with_torch - standard == {"dualtemp"}


def test_modules_can_be_reached_from_the_package() -> None:
    found = modules_after(
        "import dualtemp; dualtemp.losses.nt_xent; dualtemp.losses.hardness.entropy; dualtemp.data.Views"
    )
    assert "torch" in found


def test_public_names_come_from_the_package_itself() -> None:
    import dualtemp
    from dualtemp import losses

    assert all(getattr(dualtemp, name) is not None for name in dualtemp.__all__)
    assert dualtemp.DualTemperatureLoss is losses.DualTemperatureLoss
    assert not hasattr(dualtemp, "no_such_name")
