# %% [markdown]
# # From images to an encoder that works anywhere
#
# Train without labels, look at what happened, measure, embed, export: all from Python. Cells are separated by `# %%`,
# as Jupyter, VS Code and Spyder read them; `python docs/examples/from_images_to_encoder.py` runs them all.
#
# `DATA` may be a folder of your own images; without it, the handwritten digits that come with the package are used.

# %%
import os
from pathlib import Path

import numpy as np

import dualtemp

data = os.environ.get("DATA", "digits")
out = Path(os.environ.get("OUT", "runs/example"))
epochs = int(os.environ.get("EPOCHS", "20"))

# %% [markdown]
# ## Train
#
# SimCo: the other images of the batch are the negatives, `tau_alpha` weighs them within an anchor, `tau_beta` weighs
# the anchors. Every word is one of `dualtemp train` as well. The call returns the last epoch's figures; the folder
# holds the rest.

# %%
last = dualtemp.train(
    data=data, out=out, method="simco", tau_alpha=0.1, tau_beta=1.0, backbone="resnet_mini", batch=64, lr=0.12,
    epochs=epochs,
)  # fmt: skip
print({name: round(value, 3) for name, value in last.items() if isinstance(value, float)})

# %% [markdown]
# ## Look
#
# `report.html` in the folder is a page that needs no network: curves, verdict, hardest and easiest anchors. Here only
# its place.

# %%
print(f"open {(out / 'report.html').resolve()} in a browser")

# %% [markdown]
# ## Measure
#
# With labels, `evaluate` asks how much the features are worth beside raw pixels and an untrained encoder. Digits of
# 8 x 8 pixels, all in the middle, are told apart by their pixels alone; take photographs to see a difference.

# %%
found = dualtemp.evaluate(out, only=("knn", "probe"), quiet=True)
for each in found["measured"]:
    print(f"{each['name']:<14} {each['encoder']:<10} {each['top1']:6.2f} %")

# %% [markdown]
# ## Embed
#
# One row an image, in the order of the files; parquet and csv as well.

# %%
written = dualtemp.embed(out, data=data, out=out / "features.npz")
with np.load(out / "features.npz") as arrays:
    features = arrays["features"]
print(f"{written.images} images, {features.shape[1]} features each")

# %% [markdown]
# The nearest neighbour of the first image, by cosine:

# %%
directions = features / np.linalg.norm(features, axis=1, keepdims=True)
similarities = directions @ directions[0]
print("nearest to image 0: image", int(similarities[1:].argmax()) + 1)

# %% [markdown]
# ## Export
#
# Weights with a program that builds the module, and a graph of `torch.export`; neither needs dualtemp. `README.md` in
# the folder is a model card that says how to load each.

# %%
folder = dualtemp.export(out, format=("safetensors", "torch-export"))
print("exported to", folder, sorted(path.name for path in folder.iterdir()))
