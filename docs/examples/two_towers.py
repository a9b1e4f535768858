"""Two towers in a plain torch loop: handwritten digits and their names, spelled in letters, meet in one space.

    python docs/examples/two_towers.py        STEPS=20 makes it short

An image tower and a text tower learn together with their temperature, as in CLIP. A batch holds many a digit several
times: `ids` says that equal ones are no negatives of each other.
"""

import os

import torch
from torch import Tensor, nn

from dualtemp import TwoTowersLoss
from dualtemp.data import open_source

torch.manual_seed(0)
digits = open_source("digits")
pixels, labels = digits.train.pixels, torch.as_tensor(digits.train.labels)
assert isinstance(pixels, Tensor)
names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
letters = torch.zeros(10, 5, dtype=torch.long)  # 0 is padding, 1 is "a"
for row, name in zip(letters, names, strict=True):
    row[: len(name)] = torch.tensor([ord(letter) - 96 for letter in name])

image_tower = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
text_tower = nn.Sequential(nn.Embedding(27, 16), nn.Flatten(), nn.Linear(80, 128), nn.ReLU(), nn.Linear(128, 32))
criterion = TwoTowersLoss(tau=0.07)  # its temperature is a parameter: the optimizer must know it
optimizer = torch.optim.AdamW([*image_tower.parameters(), *text_tower.parameters(), *criterion.parameters()], lr=3e-3)

losses = []
for step in range(int(os.environ.get("STEPS", "200"))):
    index = torch.randint(len(pixels), (128,))
    images, digit = pixels[index].float() / 255, labels[index]
    loss = criterion(image_tower(images), text_tower(letters[digit]), ids=digit)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}, tau {criterion.tau:.4f}")

with torch.no_grad():
    texts = nn.functional.normalize(text_tower(letters), dim=1)
    nearest = (image_tower(pixels.float() / 255) @ texts.T).argmax(1)
print(f"from {sum(losses[:5]) / 5:.3f} to {sum(losses[-5:]) / 5:.3f}, tau {criterion.tau:.4f}")
print(f"{(nearest == labels).float().mean():.1%} of the images are nearest to their own name")
