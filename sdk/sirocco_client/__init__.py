"""Client of Sirocco: publish objects, register standing queries, receive what matches."""

from sirocco_api.v1.columns_pb2 import ObjectColumns

from sirocco_client.async_client import AsyncClient
from sirocco_client.calls.balance import Balance, BalanceDecision, LeafLoad, SlotLoad
from sirocco_client.calls.cluster import ClusterDescription, Leaf, Member, Ownership
from sirocco_client.calls.many_searches import SearchResult
from sirocco_client.calls.map_change import MapChange
from sirocco_client.client import Client
from sirocco_client.connection.channels import Tls
from sirocco_client.connection.contact import ConnectionChange
from sirocco_client.connection.retry import Retry
from sirocco_client.connection.tokens import TokenFile
from sirocco_client.errors import (
    AlreadyExists,
    CursorExpired,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ObjectsRejected,
    OutOfRange,
    PermissionDenied,
    PublishFailed,
    Rejected,
    ResourceExhausted,
    SiroccoError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    WindowTooLong,
)
from sirocco_client.notifications.async_subscription import AsyncSubscription
from sirocco_client.notifications.decode import (
    Delivery,
    Notification,
    NotificationBatch,
    TrackedNotification,
)
from sirocco_client.notifications.highlights import Highlight
from sirocco_client.notifications.list_changes import (
    Ended,
    KnnChange,
    ListChange,
    RankedChange,
    TermsStep,
)
from sirocco_client.notifications.subscription import Subscription
from sirocco_client.objects.answer import FoundObject, PartialResult, SearchAnswer, SearchPart
from sirocco_client.objects.object import Object
from sirocco_client.publishing.async_numbered_publisher import AsyncNumberedPublisher
from sirocco_client.publishing.async_publisher import AsyncPublisher
from sirocco_client.publishing.outbox import PublishFlow, PublishResult
from sirocco_client.publishing.publisher import Publisher
from sirocco_client.queries.query import (
    KnnQuery,
    QueryPage,
    RangeQuery,
    RankedQuery,
    RegisteredQuery,
    Registration,
    RegistrationResult,
    TermsQuery,
    Weights,
)
from sirocco_client.queries.query_json import query_from_json
from sirocco_client.queries.region_json import region_from_json
from sirocco_client.queries.regions import Circle, Polygon, Rectangle

__version__ = "0.1.0"

# Former names, for programs that use them.
Told = Delivery
ToldList = ListChange

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncNumberedPublisher",
    "AsyncPublisher",
    "AsyncSubscription",
    "Balance",
    "BalanceDecision",
    "Circle",
    "Client",
    "ClusterDescription",
    "ConnectionChange",
    "CursorExpired",
    "DeadlineExceeded",
    "Delivery",
    "Ended",
    "FailedPrecondition",
    "FoundObject",
    "Highlight",
    "Internal",
    "InvalidArgument",
    "KnnChange",
    "KnnQuery",
    "Leaf",
    "LeafLoad",
    "ListChange",
    "MapChange",
    "Member",
    "NotFound",
    "Notification",
    "NotificationBatch",
    "Object",
    "ObjectColumns",
    "ObjectsRejected",
    "OutOfRange",
    "Ownership",
    "PartialResult",
    "PermissionDenied",
    "Polygon",
    "PublishFailed",
    "PublishFlow",
    "PublishResult",
    "Publisher",
    "QueryPage",
    "RangeQuery",
    "RankedChange",
    "RankedQuery",
    "Rectangle",
    "RegisteredQuery",
    "Registration",
    "RegistrationResult",
    "Rejected",
    "ResourceExhausted",
    "Retry",
    "SearchAnswer",
    "SearchPart",
    "SearchResult",
    "SiroccoError",
    "SlotLoad",
    "Subscription",
    "TermsQuery",
    "TermsStep",
    "Tls",
    "TokenFile",
    "Told",
    "ToldList",
    "TrackedNotification",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Weights",
    "WindowTooLong",
    "__version__",
    "query_from_json",
    "region_from_json",
]
