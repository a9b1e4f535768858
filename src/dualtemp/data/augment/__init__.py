"""Views of images: recipes, random draws, crops, colors; batched, on the device."""
