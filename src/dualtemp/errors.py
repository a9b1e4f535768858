"""What a user can cause, and can mend."""


class UserError(ValueError):
    """A mistake that the user can mend: one line that says what is wrong, what was expected and what to do."""
