import { nameOfClient } from "../base/client-name.ts";
import type { EndedApproval } from "../approval/approvals.ts";
import { HubError } from "../base/errors.ts";
import type { ApprovalSource } from "../base/hub-events.ts";
import { formatAge } from "../base/format.ts";
import type { Hub } from "../hub/hub.ts";
import type { RoutesBelow } from "./endpoints.ts";
import { notFound } from "./requests.ts";
import type { Handlers } from "./routes.ts";

/**
 * The endpoints with which a person allows or denies calls.
 * @param check throws notFound if there is no such server
 */
export function approvalHandlers(
  hub: Hub,
  check: (server: string) => void,
): Pick<Handlers, RoutesBelow<"/approvals">> {
  const { approvals } = hub;
  return {
    "GET /approvals": () => ({ approvals: approvals.prompts }),
    "GET /approvals/remembered": async () => ({ remembered: await approvals.remembered() }),
    "DELETE /approvals/remembered": async () => ({ forgotten: await approvals.forget(undefined) }),
    "DELETE /approvals/remembered/:id": async ({ params: { id } }) => {
      const forgotten = await approvals.forget([id]);
      if (forgotten.length === 0) throw notFound(`remembered approval ${id}`);
      return { forgotten };
    },
    "POST /approvals/accept": async ({ body: { server } }) => {
      check(server);
      await hub.acceptTools(server);
    },
    "POST /approvals/:id": async ({ params: { id }, body: { decision, by = "terminal" } }) => {
      switch (approvals.answer(id, decision, by)) {
        case "accepted":
          // Whoever decides for good finds that remembered at once.
          await approvals.stored();
          return;
        case "unknown":
          throw notFound(`approval ${id}`);
        case "over":
          throw new HubError(
            "conflict",
            `Approval ${id} is over: ${endText(approvals.endOf(id))}.`,
          );
        case "noChoice": {
          const { choices = [] } = approvals.prompts.find((prompt) => prompt.id === id) ?? {};
          const text = `"${decision}" is not possible for approval ${id}. Possible: ${choices.join(", ")}.`;
          throw new HubError("invalidParams", text);
        }
      }
    },
  };
}

/** Says how an approval has ended, who has decided, and when. */
function endText(ended: EndedApproval | undefined): string {
  if (ended === undefined || ended.outcome.kind === "withdrawn")
    return "its call ended before a decision";
  const { outcome, at, principal, clientName, client } = ended;
  const { decision, by } = outcome;
  const what = decision === "deny" ? "it was denied" : `it was allowed (${decision})`;
  const who = {
    terminal: "in a terminal",
    dashboard: "on the page",
    client: `by the client ${nameOfClient({ id: client, name: clientName, principal })}`,
    timeout: "because nobody decided in time",
    rule: "by the same decision about another call",
  } as const satisfies Record<ApprovalSource, string>;
  return `${what} ${who[by]}, ${formatAge(Date.now() - at)}`;
}

/**
 * Counts the reader of an event stream as a program that shows open approvals to a person.
 * @param watched the value of `watch` in the query of the reader
 * @returns a function that ends the watch; undefined if the query has no `watch`
 */
export function startWatch(watched: string | undefined, hub: Hub): (() => void) | undefined {
  if (watched === undefined) return undefined;
  if (watched === "approvals") return hub.approvals.watch();
  throw new HubError("invalidParams", "watch must be approvals.");
}
