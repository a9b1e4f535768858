"""The local web application: look at images, choose, label, train. `dualtemp studio` serves it."""
