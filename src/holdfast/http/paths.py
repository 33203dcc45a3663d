"""Every path that programs ask: those under /api, and where webhooks come in. What is not here is not there."""

from __future__ import annotations

from typing import Any, Final

from holdfast.client.info import RunEvent
from holdfast.client.streams import Chunk
from holdfast.http import announcements, approvals, callers, history, notifications, runs, schedules, triggers, webhooks
from holdfast.http.routes import Endpoint

_FOLLOWED: Final = {204: ("There is nothing behind Last-Event-ID, and nothing will come.", None)}

PATHS: Final[tuple[Endpoint, ...]] = (
    Endpoint("GET", "/api/runs", "Runs, newest first.", runs.listed, "read", runs.Runs, query=runs.Which),
    Endpoint("POST", "/api/runs", "Start a run. The same id and arguments again are the same run.", runs.start, "write",
             runs.OneRun, body=runs.Start, more={201: ("It was started by this request.", runs.OneRun)}),
    Endpoint("GET", "/api/runs/{id}", "One run.", runs.shown, "read", runs.WholeRun),
    Endpoint("DELETE", "/api/runs/{id}", "Delete a finished run with its children.", runs.delete, "write", runs.Deleted),
    Endpoint("GET", "/api/runs/{id}/result", "What its agent returned.", runs.result, "read", runs.Result,
             query=runs.Within, more={202: ("It has not ended.", runs.OneRun)}),
    Endpoint("GET", "/api/runs/{id}/events", "Its history; as text/event-stream it is followed live until it ends.",
             runs.events, "read", runs.Events, query=runs.Behind, more=_FOLLOWED, follows=RunEvent),
    Endpoint("GET", "/api/runs/{id}/steps", "Its calls, in the order of their first events, without their values.",
             history.steps, "read", history.Steps, query=history.Behind),
    Endpoint("GET", "/api/runs/{id}/steps/{step}", "One call with its arguments and result, by its number or key.",
             history.step, "read", history.WholeStep, slashes=True),
    Endpoint("GET", "/api/runs/{id}/snapshot", "What it has come to: goal, plan, waits, messages, spending, runs below it.",
             history.snapshot, "read", history.WholeSnapshot),
    Endpoint("GET", "/api/runs/{id}/state", "The state it stored last, or that held at an event.", history.state, "read",
             history.OneState, query=history.At),
    Endpoint("GET", "/api/runs/{id}/streams/{name}", "What it writes to a stream; as text/event-stream it is followed live.",
             runs.stream, "read", runs.Chunks, query=runs.Behind, more=_FOLLOWED, follows=Chunk),
    Endpoint("POST", "/api/runs/{id}/pause", "Stop it, and all below it, until it is resumed.", runs.pause, "write",
             runs.OneRun, body=runs.Pause),
    Endpoint("POST", "/api/runs/{id}/resume", "Let a paused run go on, with those paused with it.", runs.resume,
             "write", runs.OneRun, body=runs.Resume),
    Endpoint("POST", "/api/runs/{id}/cancel", "Stop it for good: its children first, then its agent may tidy up.",
             runs.cancel, "write", runs.OneRun, body=runs.Cancel),
    Endpoint("POST", "/api/runs/{id}/retry", "Let a failed run go on from its failure.", runs.retry, "write", runs.OneRun,
             body=runs.Retry),
    Endpoint("POST", "/api/runs/{id}/fork", "Make a run that goes on from an earlier point of it.", runs.fork, "write",
             runs.OneRun, body=runs.Fork, more={201: ("It was made by this request.", runs.OneRun)}),
    Endpoint("GET", "/api/runs/{id}/forks", "The tree of forks that it is in.", runs.forks, "read", runs.Forks),
    Endpoint("POST", "/api/runs/{id}/send", "Send it a message.", runs.send, "write", runs.Sent, body=runs.Message),
    Endpoint("GET", "/api/approvals", "What waits for people, in the order asked.", approvals.listed, "read",
             approvals.Approvals, query=approvals.Which),
    Endpoint("GET", "/api/approvals/{id}", "One question, by its id or that of a run with exactly one open.",
             approvals.shown, "read", approvals.OneApproval),
    Endpoint("POST", "/api/approvals/{id}", "Decide it: approve, deny, answer or delegate what was seen; by its own id.",
             approvals.decide, "decide", approvals.OneApproval, body=approvals.Decision),
    Endpoint("GET", "/api/schedules", "What begins by itself, with its next times and its last run.", schedules.listed, "read",
             schedules.Schedules),
    Endpoint("GET", "/api/schedules/{name}", "One schedule.", schedules.shown, "read", schedules.OneSchedule),
    Endpoint("POST", "/api/schedules/{name}", "Make a schedule, or change one that was made so.", schedules.make, "write",
             schedules.OneSchedule, body=schedules.Make),
    Endpoint("DELETE", "/api/schedules/{name}", "Delete a schedule that a person made.", schedules.delete, "write",
             schedules.Gone),
    Endpoint("POST", "/api/schedules/{name}/pause", "Begin no more runs, also after deploys.", schedules.pause, "write",
             schedules.OneSchedule),
    Endpoint("POST", "/api/schedules/{name}/resume", "Begin runs again, from the next time on.", schedules.resume, "write",
             schedules.OneSchedule),
    Endpoint("POST", "/api/schedules/{name}/trigger", "Begin a run now.", schedules.trigger, "write", schedules.Begun),
    Endpoint("POST", "/api/schedules/{name}/backfill", "Begin a run for each past time that has none.", schedules.backfill,
             "write", schedules.Begun, body=schedules.Between),
    Endpoint("POST", "/api/events", "Publish an announcement for whoever waits for it. The same name and key again is the same.",
             announcements.publish, "write", announcements.Published, body=announcements.NewAnnouncement,
             more={201: ("It was published by this request.", announcements.Published)}),
    Endpoint("GET", "/api/notifications", "Who is told of which events, and what has not gone out.", notifications.listed, "read",
             notifications.Notifications),
    Endpoint("GET", "/api/notifications/{name}", "One notification.", notifications.shown, "read",
             notifications.OneNotification),
    Endpoint("POST", "/api/notifications/{name}", "Have somebody told of events, or change that.", notifications.make, "write",
             notifications.OneNotification, body=notifications.Notify),
    Endpoint("DELETE", "/api/notifications/{name}", "Delete a notification, with what has not gone out.", notifications.delete,
             "write", notifications.Untold),
    Endpoint("POST", "/api/notifications/{name}/pause", "Send nothing until it is resumed.", notifications.pause, "write",
             notifications.OneNotification),
    Endpoint("POST", "/api/notifications/{name}/resume", "Send what waits, and tell it of what happens from now on.",
             notifications.resume, "write", notifications.OneNotification),
    Endpoint("POST", "/api/notifications/{name}/test", "Send a message to see whether it arrives.", notifications.test, "write",
             notifications.Tested),
    Endpoint("GET", "/api/notifications/{name}/deliveries", "Its messages, the newest first.", notifications.deliveries, "read",
             notifications.Messages, query=notifications.WhichMessages),
    Endpoint("POST", "/api/notifications/{name}/replay", "Try a dead message again.", notifications.replay, "write",
             notifications.OneMessage, body=notifications.SendAgain),
    Endpoint("GET", "/api/triggers", "All that starts agents by itself: triggers, with what came for them, and schedules.",
             triggers.listed, "read", triggers.Triggers),
    Endpoint("GET", "/api/triggers/{name}", "One trigger.", triggers.shown, "read", triggers.OneTrigger),
    Endpoint("DELETE", "/api/triggers/{name}", "Forget a trigger whose code is gone.", triggers.forget, "write",
             triggers.Forgotten),
    Endpoint("GET", "/api/triggers/{name}/deliveries", "What came for it, the last first, without bodies.",
             triggers.deliveries, "read", triggers.Deliveries, query=triggers.Which),
    Endpoint("GET", "/api/triggers/{name}/deliveries/{delivery}", "One delivery with its body.", triggers.delivery, "read",
             triggers.WholeDelivery, slashes=True),
    Endpoint("POST", "/api/triggers/{name}/replay", "Try a dead delivery again, or all of them.", triggers.replay, "write",
             triggers.Replayed, body=triggers.Replay),
    Endpoint("POST", "/api/triggers/{name}/dismiss", "Let a dead delivery be: nothing is done about it.", triggers.dismiss,
             "write", triggers.Dismissed, body=triggers.Dismiss),
    Endpoint("POST", "/hooks/{name}", "Take a webhook: verify it, keep it once for a worker, and answer.", webhooks.take,
             None, webhooks.Received, body=bytes),
    Endpoint("GET", "/api/me", "Who asks, what that caller may do, and what is asked.", callers.me, "any", callers.Me),
    Endpoint("GET", "/api/sign-in", "How a browser can begin a session here.", callers.sign_in, None, callers.SignIn),
    Endpoint("GET", "/api/agents", "The agents that can be started, with the schemas of their arguments.", runs.agents,
             "read", runs.Agents),
)  # fmt: skip


def by_route() -> dict[str, dict[str, Endpoint]]:
    """Route -> method -> endpoint."""
    found: dict[str, dict[str, Any]] = {}
    for each in PATHS:
        found.setdefault(each.route, {})[each.method] = each
    return found
