"""The bodies of requests that a page may send, typed and bounded."""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from dualtemp.errors import UserError

Number = Annotated[int, Field(ge=0, lt=2**31)]
Numbers = Annotated[list[Number], Field(min_length=1, max_length=2_000_000)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Tau = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class Body(BaseModel):
    """A JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Chosen(Body):
    """Images by number."""

    ids: Numbers


class Labeled(Chosen):
    """Images, and the label to give them; None removes it."""

    label: Word | None


class Tagged(Chosen):
    """Images, and a tag that is added or removed."""

    tag: Word
    remove: bool = False


class Items(Body):
    """Images whose names and labels are requested."""

    ids: Annotated[list[Number], Field(min_length=1, max_length=1_000)]


class Similar(Chosen):
    """Images that others are compared with."""

    most: Annotated[int, Field(ge=1)] = 200


class Suggested(Body):
    """How many images to suggest for labeling, and by which way."""

    way: Word
    count: Annotated[int, Field(ge=1, le=500)] = 24


class Weighed(Chosen):
    """Anchors, and the two temperatures."""

    tau_alpha: Tau = 0.1
    tau_beta: Tau = 1.0


class OneTau(Body):
    """The temperature of W."""

    tau_beta: Tau = 1.0


class Duplicates(Body):
    """The least cosine of duplicates."""

    threshold: Annotated[float, Field(ge=0.5, le=1, allow_inf_nan=False)] = 0.99


class Grouped(Body):
    """Number of clusters; None: chosen automatically."""

    clusters: Annotated[int, Field(ge=2, le=500)] | None = None


class Folders(Body):
    """Class folders: links or copies, of some images or of all labeled ones."""

    copy_files: bool = False
    ids: Numbers | None = None


class Learn(Body):
    """A run to start; ids: the images to learn from, None for all."""

    ids: Numbers | None = None
    method: Word = "simco"
    init: Literal["imagenet", "none", "auto"] = "auto"
    epochs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    batch: Annotated[int, Field(ge=2, le=65_536)] | None = None
    image_size: Annotated[int, Field(ge=8, le=1_024)] | None = None
    tau_alpha: Tau | None = None
    tau_beta: Tau | None = None


class Run(Body):
    """A run by name."""

    run: Word
    epochs: Annotated[int, Field(ge=1, le=100_000)] | None = None


class Which(Body):
    """One of several, by number."""

    number: Number


Kind = TypeVar("Kind", bound=Body)


async def read_body(request: Request, kind: type[Kind]) -> Kind:
    """Read a request's JSON; raises UserError if it is not what is expected."""
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the request"
        raise UserError(f"{where}: {first['msg']}") from None
