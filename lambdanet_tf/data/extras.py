"""Optional packages, imported where they are used."""

import importlib


def require(module, extra):
    """Imports an optional module, or says which extra installs it.

    Args:
        module: str. The module, for example `"matplotlib.pyplot"`.
        extra: str. The extra of `lambdanet-tf` that installs it.

    Returns:
        The module.

    Raises:
        ImportError: if it is not installed; the message is the remedy.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{module}` is needed here and could not be imported "
            f'({error}). Install it with: pip install "lambdanet-tf[{extra}]"'
        ) from error
