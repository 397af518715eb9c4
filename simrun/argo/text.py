"""How text of users gets through a manifest unchanged.

Two languages read a manifest. Argo replaces `{{…}}` everywhere in a template and once more in the finished pod, and
evaluates `{{=…}}`. The kubelet replaces `$(NAME)` in commands, arguments and values of the environment, and takes `$$` for
`$`. Text that reaches either as it is would be executed, fail the workflow, or come out changed.
"""

from __future__ import annotations

import re

MARK = "{{"
BRACE_VARIABLE = "SIMRUN_BRACE"
"""A variable whose value is `{`. The kubelet puts it in after Argo has looked for its mark, so Argo never sees two braces."""

_EXPANDED = re.compile(r"\$(?=[$(])")
_TWO_BRACES = re.compile(r"\{(?=\{)")
_PLAIN = re.compile(r"[A-Za-z0-9._/:@+-]*")


def for_kubelet(text: str) -> str:
    """Give text that the kubelet turns into `text`: a `$` that it would act on is doubled."""
    return _EXPANDED.sub("$$", text)


def for_env(text: str) -> str:
    """Give the value of a variable that comes out as `text`; where it holds `{{`, BRACE_VARIABLE must stand before it."""
    return for_kubelet(text).replace(MARK, f"{{$({BRACE_VARIABLE})")


def for_pod_annotation(text: str) -> str:
    """Give an annotation of a pod that reads like `text`: a blank keeps two opening braces apart.

    Argo reads the annotations of pods several times, the last time when the pod is finished, so nothing that is put in
    place of the braces would come out as braces. The workflow's own annotations are not read: there text stays as it is.
    """
    return _TWO_BRACES.sub("{ ", text)


def plain(text: str, what: str) -> str:
    """Give back a name (of an image, a secret, a resource) that no language can read anything into; else ValueError."""
    if not _PLAIN.fullmatch(text):
        raise ValueError(
            f"{what} {text!r} must be made of letters, digits and the characters . _ / : @ + -"
        )
    return text
