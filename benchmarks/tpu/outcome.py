"""Results of compiling for TPUs: what they say, without TensorFlow."""

import math
import re


def memory(result):
    """Bytes that a compiled program needs on its core."""
    parts = ("arguments", "outputs", "temporaries", "code_bytes")
    return sum(result[x] for x in parts) - result["aliases"]


def estimate(result):
    """The compiler's estimate of a program, in seconds."""
    return result["optimal_seconds"] - math.floor(result["optimal_seconds"])


def refusal(message):
    """The result of a program that the compiler did not accept."""
    if "CompileTimeHbmOom" not in message:
        return {"status": "failed", "message": message[:600]}
    pattern = r"\(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)"
    sizes = re.search(pattern, message)
    used = " of ".join(sizes.groups()) if sizes else ""
    return {"status": "out of memory", "message": message[:600], "used": used}


def shortfall(result):
    """Why a program was not compiled, in a few words."""
    status = result["status"]
    if status == "timed out":
        return f"not finished after {result['limit_seconds']} s"
    if status == "out of memory":
        return f"does not fit: {result['used'] or result['message']}"
    return f"failed: {result['message']}"


def faults(result):
    """What is wrong with a program although it compiles, or an empty text."""
    texts = {"without_kernel": "no kernel for ", "double": "float64: "}
    return "; ".join(
        text + name for x, text in texts.items() for name in result.get(x) or ()
    )
