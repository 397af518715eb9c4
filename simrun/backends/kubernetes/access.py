"""Where the API server is and as whom to speak to it, as kubeconfig or the pod's service account say.

The only module that imports kubernetes_asyncio, which reads kubeconfigs, runs credential plugins and knows the files of a pod. Its client
and its watch aren't used: the first has no time limits, the second never notices a dead connection. The import alone takes a second, so
it happens in the thread that loads, which also keeps the reading of files off the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from simrun.base.errors import BackendError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API server.

    server: its address without a slash at the end. authorization: value of that header; None with a client certificate,
    which `tls` holds; certificate: a digest of that one, to see whether it was replaced. tls_server_name: the name in the
    server's certificate where it is not the address's.
    """

    server: str
    authorization: str | None = None
    tls: ssl.SSLContext | None = None
    certificate: str = ""
    tls_server_name: str | None = None
    proxy: str | None = None


def load_access(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Read how to reach the cluster; blocks, so call it in a thread.

    As kubectl does: the file that is named, else those of KUBECONFIG, else ~/.kube/config, else the service account of
    this pod. Raises BackendError when there is none or it can't be used.
    """
    source = _source(kubeconfig)
    try:
        return _load(source, context)
    except BackendError:
        raise
    except (
        Exception
    ) as error:  # the library lets KeyError, TypeError, YAML errors and its own through
        where = source or f"service account in {SERVICE_ACCOUNT}"
        raise BackendError(f"{where}: can't be used to reach the cluster: {error}") from error


def _source(kubeconfig: Path | None) -> str | None:
    """The kubeconfigs to read, in the form of KUBECONFIG; None for the service account of the pod."""
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise BackendError(f"kubeconfig {kubeconfig} does not exist")
        return str(kubeconfig)
    if named := os.environ.get("KUBECONFIG"):
        files = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        if not any(file.is_file() for file in files):
            raise BackendError(f"KUBECONFIG names {named}, which does not exist")
        return named
    default = Path.home() / ".kube" / "config"
    if default.is_file():
        return str(default)
    if (SERVICE_ACCOUNT / "token").is_file():
        return None
    raise BackendError(
        f"no cluster is configured: KUBECONFIG is not set, {default} does not exist, and this is no pod"
        " with a service account; name a file with --kubeconfig"
    )


def _load(source: str | None, context: str | None) -> Access:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    configuration: Any = Configuration()
    if source is None:
        config.load_incluster_config(  # type: ignore[no-untyped-call] # the library types a part of itself
            client_configuration=configuration,
            try_refresh_token=False,
            token_filename=str(SERVICE_ACCOUNT / "token"),
            cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
        )
    else:
        # A loop of its own: the loader is a coroutine that reads files and may wait for a plugin's process
        asyncio.run(
            config.load_kube_config(
                config_file=source,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        )
    server = str(configuration.host).rstrip("/")
    token = configuration.api_key.get("BearerToken")
    return Access(
        server=server,
        authorization=token.strip()
        if token
        else None,  # a file may end in a newline, a header may not
        tls=_tls(configuration) if server.startswith("https:") else None,
        certificate=_digest(configuration.cert_file),
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy or _environment_proxy(server),
    )


def _digest(certificate: str | None) -> str:
    return hashlib.sha256(Path(certificate).read_bytes()).hexdigest() if certificate else ""


def _environment_proxy(server: str) -> str | None:
    """The proxy that the environment names for an address; never one for this machine itself."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def _tls(configuration: Any) -> ssl.SSLContext:
    """The one TLS context of a session: making it takes 40 ms, so not once per request."""
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 wants extensions that the certificates of many clusters lack, and that kubectl does not ask for
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
