from local_starts import timm_folder  # noqa: F401  fixtures
from trained_encoders import digits_run, own_cache, photos, photos_run, run_copy  # noqa: F401  fixtures
