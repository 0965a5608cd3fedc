import { HubError } from "../base/errors.ts";
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
    "POST /approvals/:id": ({ params: { id }, body: { decision, by = "terminal" } }) => {
      switch (approvals.answer(id, decision, by)) {
        case "accepted":
          return;
        case "unknown":
          throw notFound(`approval ${id}`);
        case "over":
          throw new HubError(
            "conflict",
            `Approval ${id} is not needed any more: it is decided, or its call has ended.`,
          );
        case "noChoice":
          throw new HubError("invalidParams", `"${decision}" is not possible for approval ${id}.`);
      }
    },
  };
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
