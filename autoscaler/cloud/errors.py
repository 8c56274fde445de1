"""What AWS says when it will not: one thing refused is data, a party that does not answer an outage, each in words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Final

from autoscaler.model.errors import Unavailable

_CODES: Final = (
    # what a failed scaling activity says -> the code that a plan goes by
    (r"ReservationCapacityExceeded|targeted Capacity Reservation", "ReservationCapacityExceeded"),
    (
        r"InsufficientInstanceCapacity|do not have sufficient .* capacity|insufficient capacity",
        "InsufficientInstanceCapacity",
    ),
    (r"MaxSpotInstanceCountExceeded|spot (instance )?(count|limit)", "MaxSpotInstanceCountExceeded"),
    (r"VcpuLimitExceeded|vCPU (capacity|limit)", "VcpuLimitExceeded"),
    (r"InstanceLimitExceeded|requested more instances", "InstanceLimitExceeded"),
    (r"SpotMaxPriceTooLow|price.* (lower|too low)", "SpotMaxPriceTooLow"),
    (r"UnfulfillableCapacity|could not be fulfilled", "UnfulfillableCapacity"),
    (r"RequestLimitExceeded|Throttling|Rate exceeded", "RequestLimitExceeded"),
    (r"VolumeLimitExceeded|maximum number of volumes|volume limit", "VolumeLimitExceeded"),
    (r"InsufficientFreeAddressesInSubnet|free addresses", "InsufficientFreeAddressesInSubnet"),
    (r"above max value|max(imum)? size", "MaxSizeExceeded"),
    (r"InvalidAMIID|InvalidLaunchTemplate|launch template", "InvalidLaunchTemplate"),
    (r"UnauthorizedOperation|AccessDenied|not authorized", "UnauthorizedOperation"),
    (r"Unsupported|is not supported", "Unsupported"),
)
_CREDENTIALS: Final = frozenset(
    {
        *("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch"),
        *("ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "MissingAuthenticationToken"),
    }
)
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_NOT_TAKEN: Final = frozenset({"UnsupportedOperation", "InvalidAction"})
_THROTTLED: Final = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"})

_NO_ANSWER: Final = frozenset({"ServiceUnavailable", "InternalFailure", "InternalError", "IdempotentCallInProgress"})


class NoAnswer(Unavailable):
    """AWS was asked and has not answered: whether it did what it was asked for is not known."""


class NotAllowed(Unavailable):
    """AWS answered that this account, region or group may not be used so."""


class NotLeader(Unavailable):
    """Nothing was asked: another autoscaler may act by now."""


class Refused(Exception):  # noqa: N818 - reads as what it is at the raise site
    """AWS answered that it will not do this one thing; ``code`` is its own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def refusal_code(message: str) -> str:
    """The code that a failed activity's words stand for; ``Refused`` for words that we have not met."""
    return next((code for pattern, code in _CODES if re.search(pattern, message, re.IGNORECASE)), "Refused")


@contextlib.contextmanager
def told_in_words(region: str) -> Iterator[None]:
    """Turn botocore's many errors into ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415 - slow to import
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    try:
        yield
    except NoCredentialsError:
        raise Unavailable(
            "AWS: no credentials found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or run with a role"
        ) from None
    except ClientError as error:
        code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
        raise _in_words(code, message, region) from None
    except ResponseParserError:  # a proxy or load balancer speaks in AWS's place
        raise NoAnswer(f"AWS in {region} is not able to answer now (its answer is none of AWS's)") from None
    except (BotoCoreError, OSError) as error:
        raise NoAnswer(f"AWS in {region} does not answer: {str(error).rstrip('.')}") from None


def _in_words(code: str, message: str, region: str) -> Exception:
    if code in _CREDENTIALS:
        return Unavailable(
            f"AWS in {region} does not accept the credentials ({code}: {message}): are they right and fresh?"
        )
    if code in _DENIED:
        return NotAllowed(f"AWS in {region} does not allow this account to do that ({code}: {message})")
    if code in _NOT_TAKEN:
        return NotAllowed(f"AWS in {region} does not take that call ({code}: {message})")
    if code in _THROTTLED:
        return Unavailable(f"AWS in {region} asks for fewer calls ({code}): trying again soon")
    if code in _NO_ANSWER or code.isdigit():
        return NoAnswer(f"AWS in {region} is not able to answer now ({code}: {message})")
    return Refused(code, message)


@contextlib.contextmanager
def one_failure_alone(warn: Callable[[str], None], what: str) -> Iterator[None]:
    """What is nice to know must not stop what must be known."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError, KeyError, ValueError) as error:
        warn(f"AWS does not say {what}: {error}")
