"""Where images come from: named sets, folders, files; each gives splits of the same kind."""
