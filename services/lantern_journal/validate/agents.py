"""Every field of the requests about agents that are data."""

import re

from lantern.api.journal.v1 import agent_service_pb2 as pb
from lantern_kernel import names, reasons
from lantern_kernel.bounds import DEFINITION_BYTES_MAX
from lantern_kernel.errors import InvalidField

PUBLISHED_KINDS = ("graph",)
"""Program kinds whose agents are data."""

VERSION_MAX = 2**31 - 1

_DIGEST_HEX = re.compile(r"[0-9a-f]{64}")


def check_agent(request: pb.CheckAgentRequest) -> None:
    """CheckAgent."""
    _definition(request.program_kind, request.definition)


def publish_agent(request: pb.PublishAgentRequest) -> None:
    """PublishAgent."""
    names.check_user_id("request_id", request.request_id)
    if request.tenant_id:
        names.check_user_id("tenant_id", request.tenant_id)
    names.check_user_id("name", request.name)
    _definition(request.program_kind, request.definition)


def get_agent_definition(request: pb.GetAgentDefinitionRequest) -> None:
    """GetAgentDefinition."""
    if request.tenant_id:
        names.check_user_id("tenant_id", request.tenant_id)
    names.check_user_id("name", request.name)
    if not 0 <= request.version <= VERSION_MAX:
        raise InvalidField("version", f"{request.version} is not within 0 and {VERSION_MAX}")
    if request.digest and not _DIGEST_HEX.fullmatch(request.digest):
        raise InvalidField("digest", "no SHA-256 in 64 lower-case hexadecimal digits")
    if request.digest and request.version:
        raise InvalidField("digest", "stands beside version: give one of them")


def _definition(program_kind: str, definition: bytes) -> None:
    if program_kind not in PUBLISHED_KINDS:
        raise InvalidField("program_kind", f"{program_kind!r} is none of {', '.join(PUBLISHED_KINDS)}")
    if not definition:
        raise InvalidField("definition", "is required")
    if len(definition) > DEFINITION_BYTES_MAX:
        raise InvalidField(
            "definition",
            f"{len(definition)} bytes are more than the {DEFINITION_BYTES_MAX} allowed",
            reason=reasons.PAYLOAD_TOO_LARGE,
            size=len(definition),
            limit=DEFINITION_BYTES_MAX,
        )
