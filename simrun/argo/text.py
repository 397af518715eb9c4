"""How text of users gets through a manifest unchanged.

Two languages read a manifest. Argo replaces `{{…}}` everywhere in a template and once more in the finished pod, and
evaluates `{{=…}}`. The kubelet replaces `$(NAME)` in commands, arguments and values of the environment, and takes `$$` for
`$`. Text that reaches either as it is would be executed, fail the workflow, or come out changed.
"""

from __future__ import annotations

import base64
import re

MARK = "{{"
BRACE_VARIABLE = "SIMRUN_BRACE"
"""A variable whose value is `{`. The kubelet puts it in after Argo has looked for its mark, so Argo never sees two braces."""

_EXPANDED = re.compile(r"\$(?=[$(])")
_PLAIN = re.compile(r"[A-Za-z0-9._/:@+-]*")


def for_kubelet(text: str) -> str:
    """Give text that the kubelet turns into `text`: a `$` that it would act on is doubled."""
    return _EXPANDED.sub("$$", text)


def for_env(text: str) -> str:
    """Give the value of a variable that comes out as `text`; where it holds `{{`, BRACE_VARIABLE must stand before it."""
    return for_kubelet(text).replace(MARK, f"{{$({BRACE_VARIABLE})")


def for_pod_annotation(text: str) -> str:
    """Give an annotation for the workflow's podMetadata that a pod carries as `text`.

    podMetadata is read twice: with the workflow, when pods have no name yet, and with each finished pod, whose result is
    not read again. So text with a mark becomes an expression that has a value only then, since it asks for pod.name.
    """
    if MARK not in text:
        return text
    encoded = base64.b64encode(text.encode(errors="surrogatepass")).decode()
    return f"{{{{=pod.name == '' ? '' : fromBase64('{encoded}')}}}}"


def plain(text: str, what: str) -> str:
    """Give back a name (of an image, a secret, a resource) that no language can read anything into; else ValueError."""
    if not _PLAIN.fullmatch(text):
        raise ValueError(
            f"{what} {text!r} must be made of letters, digits and the characters . _ / : @ + -"
        )
    return text
